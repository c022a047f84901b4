import { describe, expect, test } from "vitest";
import { Refusal } from "../../../src/core/values/errors.ts";
import type { AccountLimits } from "../../../src/core/model/accountTerms.ts";
import { letterTo, World } from "../world.ts";
import type { OpenStore } from "../world.ts";

/** One more of everything that people set up, by a name of its own. */
export const makers = {
  groups: ({ store }: World, name: string) =>
    store.execute("addEndpoints", { account: "acc", name, endpoints: [{ name: null, url: "https://one.example/" }] }),
  schedules: ({ store }: World, id: string, deduplication: string | null = null) => {
    const { body, ...letter } = letterTo({ deduplication });
    return store.execute("createSchedule", { account: "acc", id, cron: "* * * * *", letter, body });
  },
  sources: ({ store }: World, name: string) => {
    const made = { destination: "https://one.example/", headers: [], verification: null, deduplicate: true, paused: false };
    return store.execute("createSource", { account: "acc", name, secretHash: `hash of ${name}`, ...made });
  },
  tokens: ({ store }: World, name: string) =>
    store.execute("createToken", {
      ...{ account: "acc", name, hash: `hash of ${name}`, scope: null },
      ...{ verbs: ["read"], destinations: [], expiresAt: null },
    }),
  queues: ({ store }: World, name: string) => store.execute("upsertQueue", { account: "acc", name }),
} as const;

export type Kind = keyof typeof makers;

export const limitTo = ({ store }: World, limits: Partial<AccountLimits>): Promise<unknown> =>
  store.execute("changeAccount", { account: "acc", change: { limits } });

/** How many were made, and what was said of the others. */
export async function madeOf(asked: readonly Promise<unknown>[]): Promise<{ made: number; refusals: Set<string> }> {
  const settled = await Promise.allSettled(asked);
  const refusals = settled.flatMap((one) => (one.status === "rejected" ? [one.reason as unknown] : []));
  for (const refusal of refusals) if (!(refusal instanceof Refusal)) throw refusal;
  return { made: settled.length - refusals.length, refusals: new Set(refusals.map((one) => (one as Refusal).message.replace(/;.*/, ""))) };
}

const names = Array.from({ length: 12 }, (_, n) => `n${n}`);

/** What an account may have so many of. */
export function describePlaces(open: OpenStore): void {
  describe("places", () => {
    test.each(Object.keys(makers) as Kind[])(
      "of %s are as many as the account may have, also when many are asked for at once",
      async (kind) => {
        const world = await World.open(open);
        await world.account();
        await world.account("other");
        await limitTo(world, { [kind]: 5 });
        await makers[kind](world, "first");
        const refusals = new Set([`${kind}: there are 5, and the limit is 5`]);
        expect(await madeOf(names.map((name) => makers[kind](world, name)))).toEqual({ made: 4, refusals });
        expect(await madeOf([makers[kind](world, "one_more")])).toEqual({ made: 0, refusals });
        await limitTo(world, { [kind]: 6 });
        expect((await madeOf(names.map((name) => makers[kind](world, `${name}_again`)))).made).toBe(1);
      },
    );

    test("of what is there are not asked for again, and are free when it is gone", async () => {
      const world = await World.open(open);
      await world.account();
      await limitTo(world, { groups: 2, schedules: 2, queues: 2 });
      for (const kind of ["groups", "schedules", "queues"] as const) {
        const make = (name: string): Promise<number> => madeOf([makers[kind](world, name)]).then(({ made }) => made);
        expect([await make("a"), await make("b"), await make("a"), await make("b"), await make("c")]).toEqual([1, 1, 1, 1, 0]);
      }
      const remove = [
        world.store.execute("deleteGroup", { account: "acc", name: "a" }),
        world.store.execute("deleteSchedule", { account: "acc", id: "a" }),
        world.store.execute("deleteQueue", { account: "acc", name: "a", slots: [] }),
      ];
      const again = (["groups", "schedules", "queues"] as const).map((kind) => makers[kind](world, "c"));
      await Promise.all(remove);
      expect(
        (await madeOf(again)).made + (await madeOf([makers.queues(world, "c"), makers.groups(world, "c")])).made,
      ).toBeGreaterThanOrEqual(4);
    });

    test("of queues hold for messages too; those that were taken in before, or are refused, need none", async () => {
      const world = await World.open(open);
      await world.account();
      await limitTo(world, { queues: 2 });
      const toQueue = (queue: string, deduplication: string | null = null) => letterTo({ queue, deduplication, delay: 5_000 });
      const first = await world.publish([
        toQueue("a", "same"),
        letterTo({ queue: "x", retries: 5_000 }),
        toQueue("b"),
        toQueue("c"),
        toQueue("a"),
      ]);
      const refused = "queues: there are 2, and the limit is 2; delete some that are not needed";
      const outcome = (results: typeof first): string[] =>
        results.map((result) =>
          "refused" in result
            ? result.message.replace(/; it is.*/, "")
            : "deduplicated" in result && result.deduplicated
              ? "same"
              : "taken",
        );
      expect(outcome(first)).toEqual(["taken", expect.stringContaining("retries"), "taken", refused, "taken"]);
      expect(outcome(await world.publish([toQueue("c", "same"), toQueue("c", "other")]))).toEqual(["same", refused]);
      expect((await madeOf([world.store.execute("pauseFlow", { account: "acc", id: "queue:c" })])).made).toBe(0);
      expect((await madeOf([world.store.execute("pauseFlow", { account: "acc", id: "key:c" })])).made).toBe(1);
      expect((await madeOf([world.store.execute("pauseFlow", { account: "acc", id: "queue:b" })])).made).toBe(1);
    });

    test("of schedules are not asked for by one that was made before", async () => {
      const world = await World.open(open);
      await world.account();
      await limitTo(world, { schedules: 1 });
      await makers.schedules(world, "a", "same");
      expect(await makers.schedules(world, "b", "same")).toEqual({ scheduleId: "a", deduplicated: true });
      expect((await madeOf([makers.schedules(world, "b")])).made).toBe(0);
    });
  });
}
