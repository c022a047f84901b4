import type { Logger } from "pino";
import type { RequestLine } from "../api/route/requestLog.ts";
import type { Settled } from "../engine/core/attempts/applyOutcome.ts";
import type { Delivery } from "../engine/core/model/delivery.ts";
import type { Outcome } from "../engine/core/model/attempt.ts";
import { parseUrl } from "../engine/core/values/url.ts";
import type { Repaired } from "../operations/operation.ts";
import type { DispatcherLog } from "../engine/delivery/dispatcher.ts";

/**
 * Returns a function that logs an attempt in one line: failures at info level, final failures at warn,
 * successes at debug. Headers and bodies are never logged.
 */
export function createAttemptLog(log: Logger): DispatcherLog["attempt"] {
  return ({ message, attempt }: Delivery, { status, error, took }: Outcome, settled: Settled["became"]) => {
    const level = settled === "delivered" ? "debug" : settled === "failed" ? "warn" : "info";
    if (!log.isLevelEnabled(level)) return;
    log[level](
      {
        messageId: message.id,
        account: message.account,
        host: readHostOnly(message.url),
        attempt,
        status,
        error,
        ms: took,
        settled,
      },
      "attempt",
    );
  };
}

/**
 * Returns a function that logs a request in one line: server errors at error level (503: warn), others at
 * debug.
 */
export function createRequestLog(log: Logger): (status: number, line: () => RequestLine) => void {
  return (status, line) => {
    const level = status < 500 ? "debug" : status === 503 ? "warn" : "error";
    if (log.isLevelEnabled(level)) log[level](line(), "request");
  };
}

/** Returns a function that logs a repair of the self-check, which every operator should report as a bug. */
export const createRepairLog =
  (log: Logger) =>
  (repaired: Repaired): void =>
    log.error(repaired, repairText);

const repairText =
  "stuck work was found and repaired; a bug has caused it, or a change of the store by another program: " +
  "please report it, with waypost doctor --bundle";

/** Returns only the host, because paths and queries of destinations can contain secrets. */
const readHostOnly = (url: string): string => parseUrl(url)?.host ?? "";

/** Logs that a hold of all deliveries has begun or ended. */
export function logHold(log: Logger, isOnHold: boolean): void {
  if (isOnHold) log.warn(heldWarning);
  else log.info("deliveries are no longer held");
}

const heldWarning =
  "all deliveries are held: publishes are accepted and nothing is sent, by no node; " +
  '"waypost unhold" or POST /v2/admin/unhold ends the hold';
