import { expect, test } from "vitest";
import { Claimer } from "../../../src/engine/delivery/claimer.ts";
import { freshDatabase } from "../../postgres.ts";
import { ask, openNode } from "../store/postgres/postgresDatabase.ts";
import { closeAfterTest, TestClock, StoreFixture } from "../store/storeFixture.ts";

test("if PostgreSQL refuses a row, one of two nodes quarantines it and both send the others", async () => {
  const url = await freshDatabase();
  const clock = new TestClock();
  const open = async (node: string, seed: number): Promise<StoreFixture> =>
    new StoreFixture(closeAfterTest(await openNode(url, clock, { node, seed })), clock, node);
  const worlds = [await open("nod_a", 1), await open("nod_b", 2)] as const;
  await worlds[0].account();
  for (const world of worlds) world.behind = true;
  const ids: string[] = [];
  for (let count = 0; count < 30; count++)
    ids.push(await worlds[0].send({ url: `https://host${count}.example/`, delay: 1000 }));
  const refused = ids[17] ?? "";
  await ask(
    url,
    `create function refuse() returns trigger language plpgsql as $$ begin raise 'row refused'; end $$`,
  );
  await ask(
    url,
    "create trigger refusal before update on messages for each row " +
      `when (new.id = '${refused}') execute function refuse()`,
  );
  clock.now += 1000;
  const troubles: string[] = [];
  const nodes = worlds.map(
    ({ store }) =>
      new Claimer({ store, now: () => clock.now, logFailure: (what) => void troubles.push(what) }),
  );
  const begun: string[] = [];
  for (let at = 0; at < 60; at++, clock.now += 1000) {
    // While one node looks for the row, the other may find nothing due. It then waits, as the dispatcher
    // does.
    await Promise.all(
      nodes.map((claims) => claims.next({ limit: 64, hostWaitlists: 64, heads: 64 }).catch(() => undefined)),
    );
    for (const world of worlds) {
      for (const delivery of world.delivered()) {
        begun.push(delivery.message.id);
        await world.settle(delivery);
      }
    }
  }
  expect(begun.toSorted((a, b) => (a < b ? -1 : 1))).toEqual(ids.filter((id) => id !== refused));
  const { entries } = await worlds[0].store.read.deadLetters({
    account: "acc",
    filter: {},
    order: "earliestFirst",
    cursor: null,
    count: 10,
  });
  expect(entries.map(({ deadLetter }) => [deadLetter.messageId, deadLetter.error])).toEqual([
    [refused, "could not be stored: row refused"],
  ]);
  expect(troubles.filter((what) => what.startsWith("quarantined "))).toHaveLength(1);
});
