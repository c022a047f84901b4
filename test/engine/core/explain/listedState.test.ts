import { describe, expect, test } from "vitest";
import type { MessageState } from "../../../../src/engine/core/model/messageState.ts";
import type { UnfinishedFilter } from "../../../../src/engine/core/explain/listedState.ts";
import {
  matchesState,
  readListedDueAt,
  readListedState,
} from "../../../../src/engine/core/explain/listedState.ts";
import { noon } from "../commandRunner.ts";
import { shopMessage } from "./shopMessage.ts";

const held = { state: "held", dueAt: null } as const;
const paused = new Set(["queue:q", "key:k"]);

describe("a list shows", () => {
  test.each<[string, Partial<MessageState>, ReturnType<typeof readListedState>]>([
    ["a message before its first attempt", {}, "pending"],
    ["a message after a failed attempt", { attempts: 1 }, "retrying"],
    ["a message after a lost attempt only", { attempts: 1, lostAttempts: 1 }, "pending"],
    ["a message in flight", { state: "active", leasedBy: "nod_1" }, "delivering"],
    [
      "a message in flight whose queue is paused",
      { state: "active", queue: "q", slot: "msg_9" },
      "delivering",
    ],
    ["a message at a key", { ...held, waitlist: "key:other" }, "held"],
    ["a message at a paused key", { ...held, waitlist: "key:k" }, "paused"],
    ["a message at a paused queue", { ...held, waitlist: "queue:q", queue: "q" }, "paused"],
    ["a message behind a paused key", { ...held, waitlist: "account:", flowControlKey: "k" }, "held"],
    ["a message that is not at its paused queue yet", { queue: "q" }, "pending"],
    ["a retry with a slot of a paused queue", { queue: "q", slot: "msg_9", attempts: 1 }, "paused"],
    ["a callback with a slot of a paused queue", { queue: "q", slot: "msg_8" }, "pending"],
  ])("%s", (_what, over, listed) => {
    const state = { ...shopMessage, ...over };
    expect(readListedState(state, paused)).toBe(listed);
    expect(readListedDueAt(state, paused)).toBe(listed === "pending" || listed === "retrying" ? noon : null);
  });
});

describe("a filter", () => {
  test.each<[UnfinishedFilter, Partial<MessageState>, boolean]>([
    [{}, {}, true],
    [{ listedStates: ["pending", "held"] }, {}, true],
    [{ listedStates: ["held"] }, {}, false],
    [{ gates: ["key"] }, { ...held, waitlist: "key:a" }, true],
    [{ gates: ["queue", "capacity"] }, { ...held, waitlist: "key:a" }, false],
    [{ gates: ["queue"] }, { queue: "a", slot: "msg_9" }, false],
    [{ runs: ["run_1"] }, { run: "run_1" }, true],
    [{ runs: ["run_1"] }, { run: "run_2" }, false],
    [{ runs: [] }, { run: "run_2" }, false],
    [{ runs: ["run_1"] }, {}, false],
    [{ belongsToRun: false }, { run: "run_1" }, false],
    [{ belongsToRun: false }, {}, true],
    [{ dueFrom: noon, dueTo: noon }, {}, true],
    [{ dueFrom: noon + 1 }, {}, false],
    [{ dueTo: noon - 1 }, {}, false],
    [{ dueFrom: 0 }, { ...held, waitlist: "key:a" }, false],
    [{ dueTo: noon }, { state: "active", leasedBy: "nod_1" }, false],
    [{ minAttempts: 2 }, { attempts: 2 }, true],
    [{ minAttempts: 2 }, { attempts: 1 }, false],
  ])("%j with %j: %s", (filter, over, matches) => {
    expect(matchesState(filter, { ...shopMessage, ...over }, paused)).toBe(matches);
  });
});
