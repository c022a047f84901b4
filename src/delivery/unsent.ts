import { noAnswer } from "../core/sending/outcome.ts";
import type { Delivery, Outcome } from "../core/model/message.ts";
import { hostOf } from "../core/values/url.ts";
import type { DeliveryCall } from "./deliver.ts";

/** What comes of a call that is not made. */
export function unsent({ message, attempt, unsendable = "" }: Delivery): DeliveryCall {
  const of = { account: message.account, messageId: message.id, host: hostOf(message.url), attempt };
  const outcome: Outcome = { ...of, ...noAnswer, error: unsendable, took: 0, final: true };
  return { outcome: Promise.resolve(outcome), abort: () => undefined };
}
