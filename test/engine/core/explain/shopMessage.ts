import type { MessageState } from "../../../../src/engine/core/model/messageState.ts";
import { noon } from "../commandRunner.ts";

/** A message that is due at noon, has no queue, key or run, and was not attempted. */
export const shopMessage: MessageState = {
  account: "acme",
  id: "msg_9",
  state: "pending",
  dueAt: noon,
  attempts: 0,
  lostAttempts: 0,
  leasedBy: null,
  host: "shop.example",
  size: 1,
  reportsOutcome: false,
  queue: null,
  flowControlKey: null,
  slot: null,
  waitlist: null,
  tags: [],
  run: null,
  timeKeys: "",
  endpoint: "https://shop.example/",
};
