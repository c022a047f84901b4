import { expect, test } from "vitest";
import { noCapacity } from "../../src/engine/core/admission/capacity.ts";
import { maxRejections } from "../../src/operations/sources/commands.ts";
import { Memory, memoryParts, memoryStore } from "./memoryStore.ts";
import { describeStore } from "../engine/store/contract/index.ts";
import { makeAccount, bytes, createSource, TestClock } from "../engine/store/storeFixture.ts";

describeStore("memory", async (clock, node) => memoryStore(createSource(clock, node)));
describeStore("memory without hints, in rounds", async (clock, node) =>
  memoryStore(createSource(clock, node), new Memory({ readsAtOnce: false, usesHints: false })),
);

test("one batch can keep several rejected calls in used places", async () => {
  const clock = new TestClock();
  const { runBatch } = memoryParts(createSource(clock, "nod_a"), new Memory());
  const made = {
    account: "acc",
    name: "s",
    destination: "https://one.example/",
    headers: [],
    verification: null,
    secretHash: "h",
  };
  await runBatch([{ name: "createAccount", input: makeAccount("acc") }], noCapacity);
  const { replies } = await runBatch(
    [{ name: "createSource", input: { ...made, deduplicate: false, paused: false } }],
    noCapacity,
  );
  const id = replies.flatMap((reply) => ("answer" in reply ? [(reply.answer as { id: string }).id] : []))[0];
  const call = {
    account: "acc",
    id,
    others: 0,
    reason: "unsigned",
    method: "POST",
    size: 2,
    body: bytes("no"),
    headers: [],
    callerIp: null,
  };
  for (let kept = 0; kept < 2 * maxRejections; kept += 10) {
    clock.now += 20_000;
    const batch = Array.from({ length: 10 }, () => ({ name: "keepRejection" as const, input: call }));
    expect((await runBatch(batch, noCapacity)).replies).toEqual(
      batch.map(() => ({ answer: { kept: true } })),
    );
  }
});
