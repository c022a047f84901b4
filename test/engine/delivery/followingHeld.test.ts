import { setTimeout as pause } from "node:timers/promises";
import { expect, onTestFinished, test } from "vitest";
import { systemClock } from "../../../src/engine/clock/clock.ts";
import type { Deliver } from "../../../src/engine/delivery/deliver.ts";
import { Dispatcher } from "../../../src/engine/delivery/dispatcher.ts";
import type { RunPost } from "../../../src/engine/core/model/runPost.ts";
import { createIdGenerator } from "../../../src/engine/core/values/ids.ts";
import { Memory, memoryStore } from "../../model/memoryStore.ts";
import { makeInput } from "../core/commandRunner.ts";

const endpoint = "https://app.example/order";
const features = { lazyFetch: true, initialBody: true, detect: true, captured: true };
const head = { stepId: 1, stepName: "s", stepType: "Run", concurrent: 1 };

/** Returns a dispatcher with a run whose second call waits for the first one, which does not end. */
async function startWaiting() {
  const memory = new Memory();
  const random = Math.random;
  const source = { node: "nod_a", now: () => Date.now(), random, newId: createIdGenerator(random) };
  const store = memoryStore(source, memory);
  const begun: string[] = [];
  const deliver: Deliver = ({ message }) => {
    begun.push(message.id);
    return { outcome: new Promise(() => undefined), abort: () => undefined };
  };
  const log = { attempt: () => undefined, failure: (what: string) => expect.unreachable(what) };
  const capacity = { total: 10, perHost: 10 };
  const dispatcher = new Dispatcher({ store, deliver, clock: systemClock, log, capacity });
  const signingKeys = { current: "", next: "" };
  const secrets = { password: "", token: "", tokenHash: "", signingKeys };
  await store.execute("createAccount", { id: "acme", name: "", ...secrets });
  dispatcher.start();
  onTestFinished(() => dispatcher.stop(0));
  const publish = async (post: RunPost): Promise<string> => {
    const [result] = await store.execute("publish", {
      account: "acme",
      inputs: [makeInput({ url: endpoint, post })],
    });
    return result && "messageId" in result ? result.messageId : "";
  };
  const start = { runId: "wfr_1", url: endpoint, features, origin: "sdk", invoker: null } as const;
  const first = await publish({ kind: "start", ...start });
  await expect.poll(() => begun).toEqual([first]);
  // A delivery of the same millisecond has not been sent.
  await pause(5);
  const next = await publish({ kind: "step", runId: "wfr_1", head });
  const isLeased = (): boolean => memory.tables.messages.get(`acme\n${next}`)?.leasedBy === "nod_a";
  return { dispatcher, begun, first, next, isLeased };
}

test("a call that waits is given back if deliveries are put on hold, and begins after the hold", async () => {
  const { dispatcher, begun, first, next, isLeased } = await startWaiting();
  dispatcher.setHold(true);
  await expect.poll(isLeased).toBe(false);
  expect(begun).toEqual([first]);
  dispatcher.setHold(false);
  await expect.poll(() => begun).toEqual([first, next]);
});

test("a call that waits is given back if the server stops", async () => {
  const { dispatcher, begun, first, isLeased } = await startWaiting();
  await dispatcher.endCallsOfRuns(600_000);
  await dispatcher.stop(0);
  expect({ begun, isLeased: isLeased() }).toEqual({ begun: [first], isLeased: false });
});
