import { expect, test } from "vitest";
import type { MessageState } from "../../../../src/engine/core/model/messageState.ts";
import type { WaitState } from "../../../../src/engine/core/explain/whyWaiting.ts";
import { listWaitReasons } from "../../../../src/engine/core/explain/whyWaiting.ts";
import { noon } from "../commandRunner.ts";
import { shopMessage } from "./shopMessage.ts";

const waitFor = (state: Partial<MessageState>): WaitState => ({
  state: { ...shopMessage, dueAt: noon - 5_000, ...state },
  retries: 3,
  createdAt: noon - 10_000,
  notBefore: noon - 5_000,
  lastEntry: null,
  queue: null,
  key: null,
  waitingAhead: null,
  timeout: 900_000,
  slotHolders: [],
});
const isDue = { reason: "due", since: noon - 5_000 };

test.each<[string, Partial<MessageState> & { isOnHold?: true }, unknown]>([
  ["a due message", {}, [isDue]],
  ["a due message while the server is held", { isOnHold: true }, [{ reason: "server-held" }, isDue]],
  [
    "a message in flight although the server is held since",
    { state: "active", leasedBy: "nod_1", dueAt: noon + 1_000, isOnHold: true },
    [
      {
        reason: "sending",
        ...{ attempt: 0, node: "nod_1", since: noon - 29_000, until: noon + 871_000, isEnding: false },
      },
    ],
  ],
  [
    "a retry",
    { attempts: 2, dueAt: noon + 9_000 },
    [{ reason: "retry", until: noon + 9_000, used: 2, limit: 3, status: null, error: null }],
  ],
  [
    "a message in flight whose node ended",
    { state: "active", leasedBy: "nod_1", dueAt: noon - 1 },
    [
      {
        reason: "lease-over",
        ended: "lease",
        attempt: 0,
        node: "nod_1",
        since: noon - 30_001,
        until: noon - 1,
      },
    ],
  ],
])("%s waits for this", (_what, { isOnHold, ...state }, reasons) => {
  expect(listWaitReasons(waitFor(state), noon, isOnHold)).toEqual(reasons);
});
