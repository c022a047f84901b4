import { noResponse } from "../core/sending/recordOutcome.ts";
import type { Delivery } from "../core/model/delivery.ts";
import type { Outcome } from "../core/model/attempt.ts";
import { parseHost } from "../core/values/url.ts";
import type { DeliveryCall } from "./deliver.ts";

/** Returns the outcome of an attempt that made no request. */
export const makeUnsentOutcome = ({ message, attempt }: Delivery, error: string): Outcome => ({
  ...{ account: message.account, messageId: message.id, host: parseHost(message.url), attempt },
  ...{ ...noResponse, error, took: 0 },
});

/** Returns the call of a message that cannot be sent. It makes no request and fails for good. */
export function failUnsendable(delivery: Delivery): DeliveryCall {
  const outcome: Outcome = { ...makeUnsentOutcome(delivery, delivery.unsendable ?? ""), isFinal: true };
  return { outcome: Promise.resolve(outcome), abort: () => undefined };
}
