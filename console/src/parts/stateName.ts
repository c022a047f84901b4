/** The eight states of messages and runs, each with its own shape. */
export type StateName =
  | "pending"
  | "delivering"
  | "retrying"
  | "held"
  | "paused"
  | "delivered"
  | "failed"
  | "cancelled";
