import { expect, test } from "vitest";
import type { Letter } from "../../../src/core/model/message.ts";
import { Broker, bytes, letterOf } from "../broker.ts";

const url = "https://app.example/order";
const features = { lazyFetch: true, initialBody: true, detect: true, captured: true };
const start: Letter = letterOf({ url, post: { kind: "start", runId: "wfr_1", url, features, origin: "sdk", invoker: null } });

test("a later run of the same name is not cancelled in the place of one that has ended", async () => {
  const broker = await Broker.open();
  await broker.run("publish", { account: "acme", letters: [start] });
  const [listed] = [...broker.memory.tables.runs.values()];
  await broker.run("finishRun", { account: "acme", runId: "wfr_1", body: bytes("") });
  await broker.run("publish", { account: "acme", letters: [start] });
  const named = { account: "acme", runIds: ["wfr_1"] };
  expect(await broker.run("cancelRuns", { ...named, keys: [listed?.id ?? ""] })).toEqual({
    cancelled: 0,
    failed: [{ id: "wfr_1", reason: "there is no run of this id that has not ended" }],
  });
  expect(await broker.run("cancelRuns", named)).toEqual({ cancelled: 1 });
});
