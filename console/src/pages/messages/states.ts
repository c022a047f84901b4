import type { Routes } from "../../api/schema.ts";
import type { StateName } from "../../parts/stateName.ts";

/** An unfinished message, as the list shows it. */
export type Unfinished = Routes["GET /v2/messages"]["response"]["messages"][number];
/** An entry of the log of a message. */
export type LogEntry = Routes["GET /v2/logs"]["response"]["events"][number];
/** The reason why a message waits. */
export type Wait = NonNullable<Routes["GET /v2/messages/{messageId}"]["response"]["waitingOn"]>[number];

/**
 * Returns the shape of the state of an unfinished message. A message that its receiver holds is in flight.
 */
export const shapeOf = (state: Unfinished["state"]): StateName =>
  state === "acknowledging" ? "delivering" : state;

/** The word of each state of an unfinished message. */
export const stateWords: Record<Unfinished["state"], string> = {
  pending: "Not due",
  retrying: "Retrying",
  delivering: "Delivering",
  acknowledging: "Acknowledging",
  held: "Held",
  paused: "Paused",
};

/** The state and the word of each entry of the log. */
export const logStates: Record<LogEntry["state"], { state: StateName; word: string }> = {
  CREATED: { state: "pending", word: "Created" },
  ACTIVE: { state: "delivering", word: "Delivering" },
  ACKNOWLEDGING: { state: "delivering", word: "Acknowledging" },
  RETRY: { state: "retrying", word: "Retrying" },
  ERROR: { state: "failed", word: "Error" },
  DELIVERED: { state: "delivered", word: "Delivered" },
  FAILED: { state: "failed", word: "Failed" },
  CANCEL_REQUESTED: { state: "cancelled", word: "Cancelling" },
  CANCELLED: { state: "cancelled", word: "Cancelled" },
};

/** The gate that a reason belongs to. */
export const gateOf: Record<Wait["reason"], "time" | "queue" | "key" | "endpoint" | "account" | "capacity"> =
  {
    "not-due": "time",
    retry: "time",
    due: "time",
    queue: "queue",
    "queue-paused": "queue",
    "key-parallelism": "key",
    "key-rate": "key",
    "key-paused": "key",
    "account-endpoint": "endpoint",
    account: "account",
    host: "capacity",
    puller: "capacity",
    "server-held": "capacity",
    turn: "capacity",
    sending: "capacity",
    acknowledging: "capacity",
    "lease-over": "capacity",
  };

/** Returns the state of a message by the first reason for which it waits. */
export function stateOfWait(reason: Wait["reason"] | undefined): { state: StateName; word: string } {
  if (reason === undefined) return { state: "pending", word: "Waiting" };
  if (reason === "not-due" || reason === "due") return { state: "pending", word: "Not due" };
  if (reason === "retry") return { state: "retrying", word: "Retrying" };
  if (reason === "sending" || reason === "lease-over") return { state: "delivering", word: "Delivering" };
  if (reason === "acknowledging") return { state: "delivering", word: "Acknowledging" };
  if (reason.endsWith("-paused")) return { state: "paused", word: "Paused" };
  return { state: "held", word: "Held" };
}
