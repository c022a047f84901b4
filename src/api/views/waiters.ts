import { z } from "zod";
import type { HeaderList } from "../../engine/core/values/basics.ts";
import type { Waiter } from "../../engine/core/model/run.ts";
import type { Notified } from "../../engine/core/commands/notify.ts";
import { toJson } from "../fields/field.ts";
import { waiterFields } from "../fields/waiter.ts";
import { toSchema } from "./fieldSchema.ts";
import type { Proof } from "../auth/bearer.ts";
import { containsToken } from "../settings/forward.ts";
import { canonicalName } from "../../engine/core/values/headers.ts";
import { redactForwarded } from "../publishing/keptSettings.ts";

/** A step that waits for an event, as the API shows it. */
export const waiterSchema = toSchema(waiterFields);

/** Returns a waiting step as the API shows it. */
export const waiterJson = (waiter: Waiter): Record<string, unknown> =>
  toJson(waiterFields, {
    ...waiter,
    shown: redactHeaders(waiter.given, waiter),
    shownAfterTimeout: redactHeaders(waiter.timeoutGiven, waiter),
  });

const redactHeaders = (headers: HeaderList, { redaction }: Waiter): HeaderList =>
  redaction ? redactForwarded(headers, redaction) : headers;

/** The effect of an event on one waiting step. */
export const notifiedWaiterSchema = z.object({
  waiter: waiterSchema
    .optional()
    .describe("The step that waited. Absent if no step waits yet and the run keeps the event."),
  messageId: z.string().optional().describe("The id of the message that delivers the event to the endpoint."),
  url: z.string().optional().describe("The URL of the endpoint, the same as waiter.url."),
  workflowRunId: z
    .string()
    .describe(
      "The id of the run. For a token without the verb read, it is empty unless the request named the " +
        "run, and all URLs are empty.",
    ),
  workflowCreatedAt: z.int().optional().describe("When the run was created, in Unix milliseconds."),
  deduplicated: z.literal(false).optional().describe("Always false. Clients expect the field."),
});

/**
 * Returns the effect of an event on one waiting step. For a token that may not read, `onlyRun`
 * has the run id that the request named. The response then shows that a step was notified, and this id. All
 * other strings are empty rather than absent, because clients expect strings.
 */
export function notifiedWaiterJson(
  { waiter, messageId, runId, createdAt }: Notified,
  onlyRun: { runId: string } | null,
): Record<string, unknown> {
  if (onlyRun)
    return {
      waiter: { url: "", headers: {} },
      messageId,
      url: "",
      workflowRunId: onlyRun.runId,
      deduplicated: false,
    };
  return {
    waiter: waiterJson(waiter),
    messageId,
    url: waiter.url,
    workflowRunId: runId,
    workflowCreatedAt: createdAt,
    deduplicated: false,
  };
}

/**
 * Returns the headers of a request that the API shows later: settings and the content type. Omits headers
 * that contain the token.
 */
export function listShownHeaders(
  rawHeaders: readonly string[],
  proof: Pick<Proof, "token"> | null,
): HeaderList {
  const headers: [string, string][] = [];
  for (let at = 0; at + 1 < rawHeaders.length; at += 2) {
    const name = rawHeaders[at] ?? "";
    const value = rawHeaders[at + 1] ?? "";
    if (/^((svc|upstash)-|content-type$)/i.test(name)) headers.push([canonicalName(name), value]);
  }
  return withoutToken(headers, proof);
}

/** Returns the headers without those that contain the token. */
export const withoutToken = (headers: HeaderList, proof: Pick<Proof, "token"> | null): HeaderList =>
  proof ? headers.filter(([, value]) => !containsToken(value, proof.token)) : headers;
