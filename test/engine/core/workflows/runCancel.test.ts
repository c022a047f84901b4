import { expect, test } from "vitest";
import type { MessageInput } from "../../../../src/engine/core/model/message.ts";
import { CommandRunner, bytes, makeInput } from "../commandRunner.ts";

const url = "https://app.example/order";
const features = { lazyFetch: true, initialBody: true, detect: true, captured: true };
const start: MessageInput = makeInput({
  url,
  post: { kind: "start", runId: "wfr_1", url, features, origin: "sdk", invoker: null },
});

test("a later run with the same run id is not cancelled in place of one that has ended", async () => {
  const broker = await CommandRunner.open();
  await broker.run("publish", { account: "acme", inputs: [start] });
  const [listed] = [...broker.memory.tables.runs.values()];
  await broker.run("finishRun", { account: "acme", runId: "wfr_1", body: bytes("") });
  await broker.run("publish", { account: "acme", inputs: [start] });
  const named = { account: "acme", runIds: ["wfr_1"] };
  expect(await broker.run("cancelRuns", { ...named, keys: [listed?.id ?? ""] })).toEqual({
    cancelled: 0,
    failed: [{ id: "wfr_1", reason: "no active run has this id" }],
  });
  expect(await broker.run("cancelRuns", named)).toEqual({ cancelled: 1 });
});
