import { readFileSync } from "node:fs";
import { join } from "node:path";
import { expect, test } from "vitest";
import { freshDatabase } from "../../../postgres.ts";
import { makeRunStart, makeRunStep } from "../contract/runs.ts";
import { closeAfterTest, StoreFixture, TestClock } from "../storeFixture.ts";
import { ask, openNode } from "./postgresDatabase.ts";

// A node that does not know that steps have run on would send an old history, and lose the run.

const released = join(import.meta.dirname, "../../../fixtures/0.1.0/waypost.sql");

const readHashes = async (url: string): Promise<unknown[]> =>
  (await ask(url, "select hash from store_schema")).map(({ hash }) => hash);

test("no node of version 0.1.0 can use the tables after the upgrade", async () => {
  const url = await freshDatabase();
  await ask(url, readFileSync(released, "utf8"));
  const before = await readHashes(url);
  expect(before).toHaveLength(1);
  closeAfterTest(await openNode(url, new TestClock()));
  expect(await readHashes(url)).not.toContain(before[0]);
});

test("steps run on only while all nodes that are alive have the same version", async () => {
  const url = await freshDatabase();
  const clock = new TestClock();
  const node = "nod_a";
  const fixture = new StoreFixture(closeAfterTest(await openNode(url, clock, { node })), clock, node);
  await fixture.account();
  let runs = 0;
  /** Starts a run, and reports whether its first step runs on. */
  const runsOn = async (): Promise<boolean> => {
    const runId = `wfr_${++runs}`;
    const { message, attempt } = await fixture.sent(makeRunStart(runId));
    clock.now += 1;
    const { post, ...input } = makeRunStep(runId, 1);
    if (post?.kind !== "step") throw new Error("not a step");
    const runOn = { messageId: message.id, attempt, call: "c1" };
    const [result] = await fixture.publish([{ ...input, post: { ...post, runOn } }]);
    for (const { message: sent } of [{ message }, ...fixture.delivered()]) fixture.forgetDelivery(sent.id);
    return result !== undefined && "runsOn" in result;
  };
  expect(await runsOn()).toBe(true);
  const other = await openNode(url, clock, { node: "nod_b", version: "1.2.2" });
  await expect.poll(runsOn).toBe(false);
  await other.close();
  await expect.poll(runsOn).toBe(true);
});
