import { describe, expect, test } from "vitest";
import type { Draft, Needs } from "../../../src/core/decision/command.ts";
import type { Outcome, RunFeatures } from "../../../src/core/model/message.ts";
import { settle } from "../../../src/core/commands/settle.ts";
import { formatKey } from "../../../src/store/queries/keys.ts";
import { CommandRunner, bytes, callbackTo, makeOutcome } from "../commandRunner.ts";

const endpoint = "https://app.example/order";
const legacy: RunFeatures = { lazyFetch: true, initialBody: false, detect: true, captured: true };
const head = { stepId: 1, stepName: "get", stepType: "Call", concurrent: 1 };
const letters = {
  first: {
    url: endpoint,
    post: { kind: "start", runId: "wfr_1", url: endpoint, features: legacy, origin: "sdk", invoker: null },
  },
  told: {
    url: endpoint,
    failureCallback: callbackTo(endpoint),
    post: { kind: "start", runId: "wfr_1", url: endpoint, features: legacy, origin: "sdk", invoker: null },
  },
  call: {
    url: "https://third.example/",
    retries: 1,
    callback: callbackTo(endpoint),
    post: { kind: "call", runId: "wfr_1", head },
  },
} as const;

/** Returns what the settling of an outcome needs, after it has seen all that it needed before. */
async function needsOf(which: keyof typeof letters, outcome: Partial<Outcome>): Promise<Needs> {
  const broker = await CommandRunner.open();
  const first = await broker.publish(letters[which === "call" ? "first" : which]);
  const messageId = which !== "call" ? first : await broker.publish(letters.call);
  const { tables } = broker.memory;
  const seen: Pick<Draft, "get" | "getWithoutBody" | "hasBacklog" | "listRunRows"> = {
    get: (table, ...key) => tables[table].get(formatKey(key)),
    getWithoutBody: (table, ...key) => tables[table].get(formatKey(key)),
    hasBacklog: () => false,
    listRunRows: () => [],
  };
  return settle.further?.(makeOutcome({ messageId, ...outcome }), seen as Draft) ?? {};
}

const workflow = [["Upstash-Workflow-Sdk-Version", "1"]] as const;

describe("the rows and the history of a run, which may be large, are loaded", () => {
  test.each([
    ["when its first message is delivered", "first", { status: 200, headers: workflow }],
    ["when one of its messages is retried", "first", { status: 500, headers: workflow }],
    ["when a call to a third party is retried", "call", { status: 500 }],
  ] as const)("not %s", async (_, which, outcome) => {
    const { runRows = [], runSteps = [], storedMessages = [] } = await needsOf(which, outcome);
    expect([runRows, runSteps, which === "call" ? [] : storedMessages]).toEqual([[], [], []]);
  });

  test.each([
    ["the destination is not a workflow", { status: 200 }, []],
    ["no retries are left", { status: 489, headers: [["Upstash-Nonretryable-Error", "true"]] }, []],
    [
      "the code does not fit the history",
      { status: 500, body: bytes('{"message":"Incompatible step name."}') },
      ["steps"],
    ],
  ] as const)("when %s", async (_, outcome, more) => {
    const { runRows = [], runSteps } = await needsOf("first", outcome);
    // The history is loaded without bodies, and only as far as it is needed, because it is not reported.
    expect([runRows.map(({ table }) => table), runSteps]).toEqual([
      ["messages", "waiters", "notifications", ...more],
      [],
    ]);
    const told = await needsOf("told", outcome);
    expect(told.runSteps).toEqual([{ account: "acme", run: expect.stringMatching(/^run_/) }]);
  });
});
