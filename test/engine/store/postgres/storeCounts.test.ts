import { expect, test } from "vitest";
import { freshDatabase } from "../../../postgres.ts";
import { StoreFixture, TestClock, closeAfterTest } from "../storeFixture.ts";
import { ask, openNode } from "./postgresDatabase.ts";

const readRows = async (url: string): Promise<string[]> =>
  (await ask(url, "select node, value from store_counts where name = 'pending' order by node")).map(
    ({ node, value }) => `${String(node)} ${String(value)}`,
  );

test("nodes count in their own rows, and a node that starts merges them", async () => {
  const url = await freshDatabase();
  const clock = new TestClock();
  const a = new StoreFixture(closeAfterTest(await openNode(url, clock)), clock, "nod_a");
  await a.account();
  await a.send({ delay: 60_000 });
  await a.send({ delay: 60_000 });
  expect(await readRows(url)).toEqual(["nod_a 2"]);
  const b = new StoreFixture(
    closeAfterTest(await openNode(url, clock, { node: "nod_b", seed: 2 })),
    clock,
    "nod_b",
  );
  expect(await readRows(url)).toEqual([" 2"]);
  await a.send({ delay: 60_000 });
  await b.send({ delay: 60_000 });
  expect(await readRows(url)).toEqual([" 2", "nod_a 1", "nod_b 1"]);
  for (const { store } of [a, b])
    expect((await store.read.storeFigures()).counts).toMatchObject({ pending: 4, retrying: 0 });
  closeAfterTest(await openNode(url, clock, { node: "nod_c", seed: 3 }));
  expect(await readRows(url)).toEqual([" 4"]);
});
