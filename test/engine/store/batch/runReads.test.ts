import { describe, expect, test } from "vitest";
import { createIdGenerator } from "../../../../src/engine/core/values/ids.ts";
import type { Outcome } from "../../../../src/engine/core/model/attempt.ts";
import type { RunFeatures } from "../../../../src/engine/core/model/runPost.ts";
import { decideBatch } from "../../../../src/engine/store/batch/decide.ts";
import type { Loader, RowsNow } from "../../../../src/engine/store/batch/loader.ts";
import {
  CommandRunner,
  ampleCapacity,
  bytes,
  callbackTo,
  makeEventWait,
  makeInput,
  makeOutcome,
} from "../../core/commandRunner.ts";
import type { CommandCall } from "../../../../src/engine/store/store.ts";
import { memoryLoader } from "../../../model/memoryStore.ts";

const endpoint = "https://app.example/order";
const legacy: RunFeatures = { lazyFetch: true, initialBody: false, detect: true, captured: true };
const head = { stepId: 1, stepName: "get", stepType: "Call", concurrent: 1 };
const inputs = {
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

/** Settles an outcome and returns the lists and bodies that were loaded for it. */
async function readsOf(which: keyof typeof inputs, outcome: Partial<Outcome>): Promise<string[]> {
  const broker = await CommandRunner.open();
  const first = await broker.publish(inputs[which === "call" ? "first" : which]);
  const messageId = which !== "call" ? first : await broker.publish(inputs.call);
  return readsDuring(broker, { name: "settle", input: makeOutcome({ messageId, ...outcome }) });
}

/** Decides a call and returns the lists, bodies and waiters that were loaded for it. */
async function readsDuring(broker: CommandRunner, call: CommandCall): Promise<string[]> {
  const loader = memoryLoader(broker.memory);
  const reads: string[] = [];
  const noting: Loader = {
    ...loader,
    now: {
      row: (table, key, options) => {
        if (table === "storedMessages" && options?.bodies !== false) reads.push("body");
        if (table === "waiters") reads.push("waiter");
        return mustReadNow(loader).row(table, key, options);
      },
      runRows: (need) => {
        reads.push(need.table);
        return mustReadNow(loader).runRows(need);
      },
    },
    steps: (needs) => {
      reads.push(...needs.map(({ stepKey = "" }) => `history ${stepKey}`.trim()));
      return loader.steps(needs);
    },
  };
  const source = {
    node: broker.node,
    now: () => broker.now,
    random: () => 0.5,
    newId: createIdGenerator(() => 0.5),
  };
  const context = { loader: noting, capacity: ampleCapacity, momentSource: source };
  const { replies } = await decideBatch([call], { ...context, startTime: Promise.resolve(null) });
  expect(replies).toEqual([{ answer: expect.anything() }]);
  return reads;
}

function mustReadNow({ now }: Loader): RowsNow {
  if (!now) throw new Error("rows cannot be read at once");
  return now;
}

const workflow = [["Upstash-Workflow-Sdk-Version", "1"]] as const;

describe("the rows and the history of a run, which may be large, are loaded", () => {
  test.each([
    ["when its first message is delivered", "first", { status: 200, headers: workflow }],
    ["when one of its messages is retried", "first", { status: 500, headers: workflow }],
    ["when a call to a third party is retried", "call", { status: 500 }],
  ] as const)("not %s", async (_, which, outcome) => {
    expect(await readsOf(which, outcome)).toEqual([]);
  });

  test.each([
    ["the destination is not a workflow", { status: 200 }, []],
    ["no retries are left", { status: 489, headers: [["Upstash-Nonretryable-Error", "true"]] }, []],
    [
      "the code does not fit the history",
      {
        status: 500,
        body: bytes("{\"message\":\"Incompatible step name. Expected 'a', got 'b' from the request\"}"),
      },
      ["steps"],
    ],
  ] as const)("when %s", async (_, outcome, more) => {
    // The history is loaded without bodies, and only as far as it is needed, because it is not reported.
    expect((await readsOf("first", outcome)).toSorted()).toEqual(
      ["messages", "notifications", ...more].toSorted(),
    );
    expect(await readsOf("told", outcome)).toContain("history");
  });

  test("with its waiting steps only if a step waits", async () => {
    const broker = await CommandRunner.open();
    await broker.publish(inputs.first);
    const input = makeInput({
      url: endpoint,
      post: { kind: "step", runId: "wfr_1", head: { ...head, stepType: "Run" } },
    });
    const post: CommandCall = { name: "publish", input: { account: "acme", inputs: [input] } };
    const end: CommandCall = {
      name: "finishRun",
      input: { account: "acme", runId: "wfr_1", body: bytes("") },
    };
    expect(await readsDuring(broker, post)).toEqual([]);
    expect(await readsDuring(broker, end)).toEqual(["messages", "notifications"]);
    await broker.run("wait", { account: "acme", runId: "wfr_1", waiter: makeEventWait("paid", 1) });
    expect(await readsDuring(broker, post)).toEqual(["waiter"]);
    expect((await readsDuring(broker, end)).toSorted()).toEqual(["messages", "notifications", "waiters"]);
  });
});
