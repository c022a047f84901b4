import { describe, expect, test } from "vitest";
import { Refusal } from "../../../../src/engine/core/values/errors.ts";
import type { AccountLimits } from "../../../../src/engine/core/model/accountTerms.ts";
import { makeInput, StoreFixture } from "../storeFixture.ts";
import type { OpenStore } from "../storeFixture.ts";

/** Creates one more row of each kind, each with its own name. */
export const objectMakers = {
  groups: ({ store }: StoreFixture, name: string) =>
    store.execute("addEndpoints", {
      account: "acc",
      name,
      endpoints: [{ name: null, url: "https://one.example/" }],
    }),
  schedules: ({ store }: StoreFixture, id: string, deduplication: string | null = null) => {
    const { body, ...input } = makeInput({ deduplication });
    return store.execute("createSchedule", {
      account: "acc",
      id,
      cron: "* * * * *",
      messageInput: input,
      body,
    });
  },
  sources: ({ store }: StoreFixture, name: string) => {
    const made = {
      destination: "https://one.example/",
      headers: [],
      verification: null,
      deduplicate: true,
      paused: false,
    };
    return store.execute("createSource", { account: "acc", name, secretHash: `hash of ${name}`, ...made });
  },
  tokens: ({ store }: StoreFixture, name: string) =>
    store.execute("createToken", {
      account: "acc",
      name,
      hash: `hash of ${name}`,
      scope: null,
      verbs: ["read"],
      destinations: [],
      expiresAt: null,
    }),
  queues: ({ store }: StoreFixture, name: string) => store.execute("upsertQueue", { account: "acc", name }),
} as const;

/** A kind of object whose number is limited. */
export type Kind = keyof typeof objectMakers;

/** Sets limits of the account of the fixture. */
export const limitTo = ({ store }: StoreFixture, limits: Partial<AccountLimits>): Promise<unknown> =>
  store.execute("changeAccount", { account: "acc", change: { limits } });

/** Returns how many rows were created, and the refusals of the others. */
export async function countMade(
  asked: readonly Promise<unknown>[],
): Promise<{ made: number; refusals: Set<string> }> {
  const settled = await Promise.allSettled(asked);
  const refusals = settled.flatMap((one) => (one.status === "rejected" ? [one.reason as unknown] : []));
  for (const refusal of refusals) if (!(refusal instanceof Refusal)) throw refusal;
  return {
    made: settled.length - refusals.length,
    refusals: new Set(refusals.map((one) => (one as Refusal).message.replace(/;.*/, ""))),
  };
}

const names = Array.from({ length: 12 }, (_, n) => `n${n}`);

/** The limits of the number of rows that an account may have. */
export function describeObjectLimits(open: OpenStore): void {
  describe("limits", () => {
    test.each(Object.keys(objectMakers) as Kind[])(
      "of %s are exact, even if many are created at once",
      async (kind) => {
        const fixture = await StoreFixture.open(open);
        await fixture.account();
        await fixture.account("other");
        await limitTo(fixture, { [kind]: 5 });
        await objectMakers[kind](fixture, "first");
        const refusals = new Set([`${kind}: there are 5, and the limit is 5`]);
        expect(await countMade(names.map((name) => objectMakers[kind](fixture, name)))).toEqual({
          made: 4,
          refusals,
        });
        expect(await countMade([objectMakers[kind](fixture, "one_more")])).toEqual({ made: 0, refusals });
        await limitTo(fixture, { [kind]: 6 });
        expect(
          (await countMade(names.map((name) => objectMakers[kind](fixture, `${name}_again`)))).made,
        ).toBe(1);
      },
    );

    test("do not count a change of an existing row, and no longer count a removed row", async () => {
      const fixture = await StoreFixture.open(open);
      await fixture.account();
      await limitTo(fixture, { groups: 2, schedules: 2, queues: 2 });
      for (const kind of ["groups", "schedules", "queues"] as const) {
        const make = (name: string): Promise<number> =>
          countMade([objectMakers[kind](fixture, name)]).then(({ made }) => made);
        expect([await make("a"), await make("b"), await make("a"), await make("b"), await make("c")]).toEqual(
          [1, 1, 1, 1, 0],
        );
      }
      const remove = [
        fixture.store.execute("deleteGroup", { account: "acc", name: "a" }),
        fixture.store.execute("deleteSchedule", { account: "acc", id: "a" }),
        fixture.store.execute("deleteQueue", { account: "acc", name: "a", slots: [] }),
      ];
      const again = (["groups", "schedules", "queues"] as const).map((kind) =>
        objectMakers[kind](fixture, "c"),
      );
      await Promise.all(remove);
      expect(
        (await countMade(again)).made +
          (await countMade([objectMakers.queues(fixture, "c"), objectMakers.groups(fixture, "c")])).made,
      ).toBeGreaterThanOrEqual(4);
    });

    test("of queues apply to messages, except to deduplicated and refused ones", async () => {
      const fixture = await StoreFixture.open(open);
      await fixture.account();
      await limitTo(fixture, { queues: 2 });
      const toQueue = (queue: string, deduplication: string | null = null) =>
        makeInput({ queue, deduplication, delay: 5_000 });
      const first = await fixture.publish([
        toQueue("a", "same"),
        makeInput({ queue: "x", retries: 5_000 }),
        toQueue("b"),
        toQueue("c"),
        toQueue("a"),
      ]);
      const refused = "queues: there are 2, and the limit is 2; delete some that are not needed";
      const outcome = (results: typeof first): string[] =>
        results.map((result) =>
          "refused" in result
            ? result.message.replace(/, or raise.*/, "")
            : "deduplicated" in result && result.deduplicated
              ? "same"
              : "taken",
        );
      expect(outcome(first)).toEqual([
        "taken",
        expect.stringContaining("retries"),
        "taken",
        refused,
        "taken",
      ]);
      expect(outcome(await fixture.publish([toQueue("c", "same"), toQueue("c", "other")]))).toEqual([
        "same",
        refused,
      ]);
      expect(
        (await countMade([fixture.store.execute("pauseLimiter", { account: "acc", id: "queue:c" })])).made,
      ).toBe(0);
      expect(
        (await countMade([fixture.store.execute("pauseLimiter", { account: "acc", id: "key:c" })])).made,
      ).toBe(1);
      expect(
        (await countMade([fixture.store.execute("pauseLimiter", { account: "acc", id: "queue:b" })])).made,
      ).toBe(1);
    });

    test("of schedules do not apply to an existing schedule", async () => {
      const fixture = await StoreFixture.open(open);
      await fixture.account();
      await limitTo(fixture, { schedules: 1 });
      await objectMakers.schedules(fixture, "a", "same");
      expect(await objectMakers.schedules(fixture, "b", "same")).toEqual({
        scheduleId: "a",
        deduplicated: true,
      });
      expect((await countMade([objectMakers.schedules(fixture, "b")])).made).toBe(0);
    });
  });
}
