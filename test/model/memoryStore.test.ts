import { expect, test } from "vitest";
import { noHands } from "../../src/core/admission/capacity.ts";
import { places } from "../../src/core/commands/source.ts";
import { Memory, memoryParts, memoryStore } from "./memoryStore.ts";
import { describeStore } from "../store/contract/index.ts";
import { accountNamed, bytes, sourceOf, TestClock } from "../store/world.ts";

describeStore("memory", async (clock, node) => memoryStore(sourceOf(clock, node)));

test("one batch keeps several rejected calls in places that have been used before", async () => {
  const clock = new TestClock();
  const { runBatch } = memoryParts(sourceOf(clock, "nod_a"), new Memory());
  const made = { account: "acc", name: "s", destination: "https://one.example/", headers: [], verification: null, secretHash: "h" };
  await runBatch([{ name: "createAccount", input: accountNamed("acc") }], noHands);
  const { replies } = await runBatch([{ name: "createSource", input: { ...made, deduplicate: false, paused: false } }], noHands);
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
  for (let kept = 0; kept < 2 * places; kept += 10) {
    clock.now += 20_000;
    const batch = Array.from({ length: 10 }, () => ({ name: "keepRejection" as const, input: call }));
    expect((await runBatch(batch, noHands)).replies).toEqual(batch.map(() => ({ answer: { kept: true } })));
  }
});
