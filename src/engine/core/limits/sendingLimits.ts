import { findHostRefusal } from "../accounts/allowedHosts.ts";
import { type BodyLimit, findRaise, readLimits, readMessageBytes } from "../accounts/plans.ts";
import type { LimitName } from "../model/accountTerms.ts";
import type { Account } from "../model/account.ts";
import type { CallbackSettings, FlowControl, SendSettings } from "../model/sendSettings.ts";
import type { MessageInput } from "../model/message.ts";
import type { Millis } from "../values/basics.ts";
import { formatDuration } from "../values/duration.ts";
import { second } from "../values/time.ts";
import { limits } from "../values/limits.ts";
import type { Refused } from "../values/errors.ts";

// The limits on what a request may ask for: sizes, delays, retries, timeouts and flow control.

/** Returns a refusal if a body is larger than the account may send, or null. */
export function findBodyRefusal(account: Account, body: Uint8Array, server: BodyLimit): Refused | null {
  const messageBytes = readMessageBytes(account, server);
  if (body.byteLength <= messageBytes) return null;
  const problem = `${body.byteLength} bytes exceeds the limit of ${messageBytes}`;
  const isServerLimit = messageBytes < readLimits(account).messageBytes;
  const remedy = isServerLimit ? undefined : findRaise(account, "messageBytes");
  return { refused: "too-large", message: `body: ${problem}`, remedy };
}

/**
 * Returns a refusal if settings of an input or of its callbacks exceed a limit, or if the account may not
 * send to one of their hosts, or null.
 */
export function findSendingRefusal(
  account: Account,
  input: SendSettings & Pick<MessageInput, "delay" | "notBefore"> & Partial<Pick<MessageInput, "url">>,
  now: Millis,
): Refused | null {
  return (
    findHostRefusal(account, input.url === undefined ? [] : [input.url]) ??
    findDelayRefusal(account, input, now) ??
    findSettingsRefusal(account, input) ??
    findCallbackRefusal(account, input.callback, now) ??
    findCallbackRefusal(account, input.failureCallback, now)
  );
}

function findDelayRefusal(
  account: Account,
  { delay, notBefore }: Pick<MessageInput, "delay" | "notBefore">,
  now: Millis,
): Refused | null {
  const maxDelay = readLimits(account).delay;
  const limit = { value: formatDuration(maxDelay), owner: account, name: "delay" } as const;
  if ((delay ?? 0) > maxDelay) return limitExceeded("delay", formatDuration(delay ?? 0), limit);
  const fromNow = (notBefore ?? now) - now;
  return fromNow > maxDelay
    ? limitExceeded("not-before", `${formatDuration(Math.ceil(fromNow / second) * second)} from now`, limit)
    : null;
}

function findCallbackRefusal(
  account: Account,
  callback: CallbackSettings | null,
  now: Millis,
): Refused | null {
  if (!callback) return null;
  return (
    findHostRefusal(account, [callback.url]) ??
    findDelayRefusal(account, { delay: callback.delay ?? null, notBefore: null }, now) ??
    findSettingsRefusal(account, callback) ??
    findCallbackRefusal(account, callback.callback, now) ??
    findCallbackRefusal(account, callback.failureCallback, now)
  );
}

/**
 * Checks the settings that are given. For the others, `engine/core/sending/createMessage.ts` uses the
 * default, or the limit if that is lower.
 */
function findSettingsRefusal(
  account: Account,
  { retries, timeout, headers, flowControl }: SendSettings,
): Refused | null {
  const accountLimits = readLimits(account);
  if ((retries ?? 0) > accountLimits.retries)
    return limitExceeded("retries", `${retries ?? 0}`, {
      value: accountLimits.retries,
      owner: account,
      name: "retries",
    });
  const headerBytes = headers.reduce((sum, [name, value]) => sum + name.length + value.length, 0);
  if (headerBytes > limits.headerBytes)
    return limitExceeded("headers", `${headerBytes} bytes`, { value: limits.headerBytes });
  if ((timeout ?? 0) > accountLimits.timeout)
    return limitExceeded("timeout", formatDuration(timeout ?? 0), {
      value: formatDuration(accountLimits.timeout),
      owner: account,
      name: "timeout",
    });
  return flowControl ? findFlowControlRefusal(flowControl) : null;
}

/** Returns a refusal if the parallelism, rate or period of a queue or key exceeds its limit, or null. */
export function findFlowControlRefusal({
  parallelism,
  rate,
  period,
}: Partial<Omit<FlowControl, "key">>): Refused | null {
  if ((parallelism ?? 0) > limits.parallelism)
    return limitExceeded("parallelism", `${parallelism ?? 0}`, { value: limits.parallelism });
  if ((rate ?? 0) > limits.rate) return limitExceeded("rate", `${rate ?? 0}`, { value: limits.rate });
  // No account can have a longer period. This refusal therefore has the status of malformed input, unlike
  // those above, which another plan would accept.
  if ((period ?? 0) > limits.period)
    return {
      ...limitExceeded("period", formatDuration(period ?? 0), { value: formatDuration(limits.period) }),
      refused: "invalid",
    };
  return null;
}

/** Returns a refusal if the parallelism of a queue is more than the account may have, or null. */
export function findParallelismRefusal(account: Account, parallelism: number): Refused | null {
  const value = readLimits(account).parallelism;
  return parallelism > value
    ? limitExceeded("parallelism", `${parallelism}`, { value, owner: account, name: "parallelism" })
    : null;
}

/** A limit of the server, or of the account `owner` under the name `name`. */
type ExceededLimit =
  | { value: number | string; owner?: undefined }
  | { value: number | string; owner: Account; name: LimitName };

const limitExceeded = (field: string, amount: string, limit: ExceededLimit): Refused => ({
  refused: "limit-exceeded",
  message: `${field}: ${amount} exceeds the limit of ${limit.value}`,
  remedy: limit.owner && findRaise(limit.owner, limit.name),
});
