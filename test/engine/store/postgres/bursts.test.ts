import { setTimeout as pause } from "node:timers/promises";
import { expect, onTestFinished, test } from "vitest";
import { SharedBursts } from "../../../../src/api/auth/sharedBursts.ts";
import type { Burst } from "../../../../src/engine/core/limits/requestRate.ts";
import { systemClock } from "../../../../src/engine/clock/clock.ts";
import { postgresStore } from "../../../../src/engine/store/postgres/database.ts";
import type { Store } from "../../../../src/engine/store/store.ts";
import { freshDatabase } from "../../../postgres.ts";
import { createRandom } from "../createRandom.ts";
import { ask, openNode } from "./postgresDatabase.ts";
import {
  makeAccount,
  closeAfterTest,
  makeInput,
  createSteppedClock,
  TestClock,
  StoreFixture,
} from "../storeFixture.ts";

// Three nodes accept requests at the same time and share the request limit through a row of the database.

const names = ["nod_a", "nod_b", "nod_c"];

async function withLimit(store: Store, requestsPerSecond: number) {
  await store.execute("createAccount", makeAccount("acc"));
  return store.execute("changeAccount", { account: "acc", change: { limits: { requestsPerSecond } } });
}

const taken = (bursts: readonly (Burst | null)[]): number => bursts.filter((burst) => burst?.taken).length;

test("three nodes together accept one limit of requests per second, even while publishing", async () => {
  const url = await freshDatabase();
  const clock = new TestClock();
  clock.now = Math.ceil(clock.now / 1000) * 1000;
  const stores = await Promise.all(
    names.map(async (node, seed) => closeAfterTest(await openNode(url, clock, { node, seed: seed + 1 }))),
  );
  const worlds = stores.map((store, index) => new StoreFixture(store, clock, names[index] ?? ""));
  const account = await withLimit(stores[0] as Store, 100);
  // The clock stands still, so that no node gives up waiting for the others.
  const nodes = stores.map(
    (store) => new SharedBursts({ store, now: () => clock.now, sleep: () => new Promise(() => undefined) }),
  );
  const random = createRandom(5);
  for (let second = 0; second < 5; second++) {
    clock.now += 1000;
    const at = async (node: SharedBursts): Promise<(Burst | null)[]> => {
      const bursts: (Burst | null)[] = [];
      for (let round = 0; round < 30; round++) {
        const asked = Array.from({ length: Math.floor(random() * 5) }, () =>
          Promise.resolve(node.count(account, clock.now)),
        );
        bursts.push(...(await Promise.all(asked)));
      }
      return bursts;
    };
    const publishing = Promise.all(worlds.map((world) => world.publish([makeInput({ delay: 1_000 })])));
    const all = (await Promise.all(nodes.map(at))).flat();
    await publishing;
    // A node cannot use what another node still has reserved, so each node asks until it is refused.
    for (const node of nodes) {
      let burst: Burst | null = null;
      do all.push((burst = await node.count(account, clock.now)));
      while (burst?.taken);
    }
    expect(taken(all)).toBe(100);
    expect(new Set(all.map((burst) => burst?.resetAt))).toEqual(new Set([clock.now / 1000 + 1]));
  }
  expect(
    await ask(url, "select count(*)::int as rows, sum(requests)::int as requests from second_counts"),
  ).toEqual([{ rows: 1, requests: 100 }]);
});

test(
  "nodes with different clocks agree on each second by the database's clock",
  { tags: "long" },
  async () => {
    const url = await freshDatabase();
    const most = 40;
    const stores = await Promise.all(
      names.map(async (node, seed) =>
        closeAfterTest(
          await postgresStore({
            url,
            node,
            random: createRandom(seed + 1),
            clock: createSteppedClock(new TestClock()),
          }),
        ),
      ),
    );
    const account = await withLimit(stores[0] as Store, most);
    const offsets = [0, 340, -3_600_610];
    const nodes = stores.map((store, index) => {
      const now = (): number => systemClock.now() + (offsets[index] ?? 0);
      const bursts = new SharedBursts({
        store,
        now,
        sleep: (until, wake) => systemClock.sleep(until - (offsets[index] ?? 0), wake),
      });
      return async () => bursts.count(account, now());
    });
    let isAsking = true;
    onTestFinished(() => void (isAsking = false));
    const bySecond = new Map<number, Burst[]>();
    const over = (): number[] =>
      [...bySecond].filter(([, bursts]) => bursts.some((burst) => !burst.taken)).map(([at]) => at);
    const asking = nodes.map(async (askOne) => {
      while (isAsking) {
        const burst = await askOne();
        if (burst) bySecond.set(burst.resetAt, [...(bySecond.get(burst.resetAt) ?? []), burst]);
        await pause(1);
      }
    });
    // Runs until the limit was reached in four seconds.
    while (over().length < 4) await pause(20);
    isAsking = false;
    await Promise.all(asking);
    for (const [at, bursts] of bySecond) expect(taken(bursts), `${at}`).toBeLessThanOrEqual(most);
  },
);
