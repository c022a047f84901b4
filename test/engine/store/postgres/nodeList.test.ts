import { expect, test } from "vitest";
import { openNodes } from "./severalNodes.ts";
import { ask } from "./postgresDatabase.ts";
import { makeInput } from "../storeFixture.ts";

test("the list has each node, its version, its last change, and whether it is alive", async () => {
  const { url, clock, worlds } = await openNodes(3);
  const [a, b, c] = worlds;
  const started = clock.now;
  clock.now += 60_000;
  await a.publish([makeInput()]);
  await c?.store.close();
  // The node is killed: its membership ends without a word.
  await ask(url, "insert into nodes (id, started_at, version, session) values ('nod_killed', 5, '0.1.0', 1)");
  const found = await b.store.upkeep.nodes();
  const byId = Object.fromEntries(found.map((one) => [one.id, one]));
  expect(found[0]?.id).toBe("nod_0");
  expect(found.map(({ id }) => id).toSorted()).toEqual(["nod_0", "nod_1", "nod_2", "nod_killed"]);
  expect(byId["nod_0"]).toMatchObject({ version: "1.2.3", startedAt: started, isAlive: true });
  expect(byId["nod_0"]?.changedAt).toBeGreaterThanOrEqual(started + 60_000);
  expect(byId["nod_1"]).toMatchObject({ isAlive: true });
  expect(byId["nod_2"]).toMatchObject({ membership: 0, isAlive: false });
  expect(byId["nod_killed"]).toMatchObject({
    version: "0.1.0",
    membership: 1,
    isAlive: false,
    changedAt: null,
  });
});
