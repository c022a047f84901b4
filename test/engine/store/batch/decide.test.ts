import { expect, test } from "vitest";
import type { Commands } from "../../../../src/engine/store/catalog/commands.ts";
import { commands } from "../../../../src/engine/store/catalog/commands.ts";
import { Refusal } from "../../../../src/engine/core/values/errors.ts";
import { noCapacity } from "../../../../src/engine/core/admission/capacity.ts";
import { createIdGenerator } from "../../../../src/engine/core/values/ids.ts";
import { Memory, memoryParts } from "../../../model/memoryStore.ts";
import { makeInput } from "../../core/commandRunner.ts";

const source = { node: "nod_a", now: () => 1_000, random: () => 0.5, newId: createIdGenerator(() => 0.5) };
const account = {
  id: "acme",
  name: "",
  password: "",
  token: "",
  tokenHash: "",
  signingKeys: { current: "", next: "" },
};
const url = "https://app.example/order";
const features = { lazyFetch: true, initialBody: true, detect: true, captured: true };
const start = makeInput({
  url,
  post: { kind: "start", runId: "wfr_1", url, features, origin: "sdk", invoker: null },
});
const fails = (error: Error) => (): never => {
  throw error;
};

test("a call that fails does not affect the other calls of its batch", async () => {
  for (const [error, reply] of [
    [new Error("broken"), { failed: expect.stringContaining("broken") }],
    [new Refusal("invalid", "not so"), { refused: { code: "invalid", message: "not so" } }],
  ] as const) {
    const broken: Commands = { ...commands, cancel: { ...commands.cancel, decide: fails(error) } };
    const memory = new Memory();
    const { runBatch } = memoryParts(source, memory, broken);
    await runBatch([{ name: "createAccount", input: account }], noCapacity);
    const publish = { name: "publish", input: { account: "acme", inputs: [makeInput()] } } as const;
    const cancel = { name: "cancel", input: { account: "acme", messageIds: ["msg_1"] } } as const;
    const { replies } = await runBatch([publish, cancel, publish], noCapacity);
    const published = { answer: [{ messageId: expect.any(String), deduplicated: false }] };
    expect(replies).toEqual([published, reply, published]);
    expect(memory.tables.messages.size).toBe(2);
  }
});

test.each([
  ["once if rows are read at once", true, 1],
  ["again after each load of its rows", false, 3],
])("the end of a run is decided %s", async (_, readsAtOnce, times) => {
  let decided = 0;
  const decide: Commands["finishRun"]["decide"] = (input, draft, moment) => {
    decided++;
    return commands.finishRun.decide(input, draft, moment);
  };
  const counting: Commands = { ...commands, finishRun: { ...commands.finishRun, decide } };
  const { runBatch } = memoryParts(source, new Memory({ readsAtOnce }), counting);
  await runBatch([{ name: "createAccount", input: account }], noCapacity);
  await runBatch([{ name: "publish", input: { account: "acme", inputs: [start] } }], noCapacity);
  const finish = { account: "acme", runId: "wfr_1", body: new Uint8Array() };
  const { replies } = await runBatch([{ name: "finishRun", input: finish }], noCapacity);
  expect(replies).toEqual([{ answer: { finished: true } }]);
  expect(decided).toBe(times);
});

test("a hint that fails, or names nothing, changes no reply", async () => {
  for (const hint of [fails(new Error("broken")), () => ({})]) {
    const memory = new Memory({ readsAtOnce: false });
    const { runBatch } = memoryParts(source, memory, { ...commands, publish: { ...commands.publish, hint } });
    await runBatch([{ name: "createAccount", input: account }], noCapacity);
    const publish = { name: "publish", input: { account: "acme", inputs: [makeInput()] } } as const;
    const { replies } = await runBatch([publish], noCapacity);
    expect(replies).toEqual([{ answer: [{ messageId: expect.any(String), deduplicated: false }] }]);
  }
});
