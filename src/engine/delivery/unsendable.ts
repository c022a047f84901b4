import { noResponse } from "../core/sending/recordOutcome.ts";
import type { Delivery } from "../core/model/delivery.ts";
import type { Outcome } from "../core/model/attempt.ts";
import { parseHost } from "../core/values/url.ts";
import type { DeliveryCall } from "./deliver.ts";

/** Returns the call of a message that cannot be sent. It makes no request and fails for good. */
export function failUnsendable({ message, attempt, unsendable = "" }: Delivery): DeliveryCall {
  const attemptFields = {
    account: message.account,
    messageId: message.id,
    host: parseHost(message.url),
    attempt,
  };
  const outcome: Outcome = { ...attemptFields, ...noResponse, error: unsendable, took: 0, isFinal: true };
  return { outcome: Promise.resolve(outcome), abort: () => undefined };
}
