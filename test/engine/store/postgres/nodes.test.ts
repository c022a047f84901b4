import { expect, test } from "vitest";
import { spans } from "../../../../src/engine/core/values/limits.ts";
import type { Delivery } from "../../../../src/engine/core/model/delivery.ts";
import type { Kind } from "../contract/objectLimits.ts";
import { limitTo, countMade, objectMakers } from "../contract/objectLimits.ts";
import { idsOf, openNodes } from "./severalNodes.ts";
import type { StoreFixture } from "../storeFixture.ts";
import { makeAccount, makeInput, makeOutcome } from "../storeFixture.ts";

// Several nodes use one database at the same time. No change may happen twice or get lost, and nodes must not
// wait for each other in a circle.

test("nodes that open an empty database at the same time share the accounts", async () => {
  const { worlds } = await openNodes(4);
  const made = await Promise.all(
    worlds.map(({ store }) => store.execute("createAccount", makeAccount("second"))),
  );
  for (const account of made) expect(account).toEqual(made[0]);
  expect(await worlds[1].store.read.accounts()).toHaveLength(2);
});

test("a token revoked on one node is refused on the others", async () => {
  const { worlds } = await openNodes(2);
  const [a, b] = worlds;
  const asked = { name: "", verbs: ["read"], destinations: [], expiresAt: null } as const;
  const { id } = await a.store.execute("createToken", { account: "acc", hash: "h", scope: null, ...asked });
  expect(await b.store.read.tokenByHash("h")).toMatchObject({ id });
  const heard = new Promise<void>((resolve) => b.store.onAccounts(resolve));
  await a.store.execute("revokeToken", { account: "acc", id });
  await heard;
  expect(await b.store.read.tokenByHash("h")).toBeNull();
});

test("a change of an account is announced once on every node", async () => {
  const { worlds } = await openNodes(2);
  const [a, b] = worlds;
  const heard = new Promise<void>((resolve) => b.store.onAccounts(resolve));
  let own = 0;
  const stop = a.store.onAccounts(() => own++);
  await a.store.execute("rotateToken", { account: "acc", password: "p", token: "t", tokenHash: "h" });
  expect(own).toBe(1);
  await heard;
  expect(await b.store.read.accountByToken("h")).toMatchObject({ id: "acc", password: "p" });
  stop();
  await b.store.execute("changeAccount", { account: "acc", change: { state: "passive" } });
  expect(own).toBe(1);
  expect(await a.store.read.account("acc")).toMatchObject({ state: "passive", token: "t" });
});

test("nodes that claim at the same time get each message once", async () => {
  const { worlds, clock } = await openNodes(3);
  const [a] = worlds;
  const results = await a.publish(Array.from({ length: 300 }, () => makeInput({ delay: 1 })));
  clock.now += 1;
  for (const world of worlds) world.capacity = { total: 1_000, perHost: 1_000 };
  const claimed: Delivery[] = [];
  for (let turn = 0; turn < 20; turn++)
    claimed.push(...(await Promise.all(worlds.map((world) => world.claim(17)))).flat());
  expect(claimed).toHaveLength(300);
  expect(new Set(idsOf(claimed))).toEqual(
    new Set(results.map((result) => ("messageId" in result ? result.messageId : ""))),
  );
  for (const world of worlds) expect(await world.claim()).toEqual([]);
});

test("nodes that publish with the same deduplication id at the same time create one message", async () => {
  const { worlds } = await openNodes(3);
  const [a] = worlds;
  for (let round = 0; round < 20; round++) {
    // The orders differ, so that the nodes could wait for each other in a circle.
    const inputs = ["x", "y", "z"].map((id) => makeInput({ deduplication: `${id}${round}`, delay: 1_000 }));
    const all = await Promise.all(
      worlds.map((world, index) => world.publish(index === 1 ? inputs.toReversed() : inputs)),
    );
    const first = all[0];
    const second = all[1]?.toReversed();
    const third = all[2];
    for (const position of [0, 1, 2]) {
      const results = [first, second, third].map((list) => list?.[position]);
      expect(new Set(results.map((result) => result && "messageId" in result && result.messageId)).size).toBe(
        1,
      );
      expect(
        results.filter((result) => result && "deduplicated" in result && !result.deduplicated),
      ).toHaveLength(1);
    }
  }
  expect(
    (await a.store.read.unfinished({ account: "acc", filter: {}, cursor: null, count: 100 })).messageIds,
  ).toHaveLength(60);
});

test("nodes count usage exactly and share a daily request limit, at the same time", async () => {
  const { worlds } = await openNodes(3);
  await worlds[0].account("free");
  await worlds[0].store.execute("changeAccount", {
    account: "acc",
    change: { limits: { requestsPerDay: 40, requestsPerDayHard: 50 } },
  });
  const publishes = Array.from({ length: 60 }, (_, index) => {
    const world = worlds[index % worlds.length] ?? worlds[0];
    return Promise.all([
      world.publish([makeInput({ delay: 1_000 })]),
      world.publish([makeInput({ delay: 1_000 })], "free"),
    ]);
  });
  const results = (await Promise.all(publishes)).map(([[limited]]) => limited);
  expect(results.filter((one) => one && "messageId" in one)).toHaveLength(50);
  expect(
    results.filter((one) => one && "refused" in one && one.refused === "day-limit-exceeded"),
  ).toHaveLength(10);
  for (const [account, count] of [
    ["acc", 50],
    ["free", 60],
  ] as const) {
    const rows = await worlds[1].store.read.usage(account, "3h", 0);
    expect(rows).toHaveLength(3);
    expect(rows.reduce((sum, { messages }) => sum + messages, 0)).toBe(count);
  }
});

test("nodes that rotate keys at the same time create an unbroken chain of keys", async () => {
  const { worlds } = await openNodes();
  const pairs = [];
  for (let round = 0; round < 10; round++) {
    pairs.push(
      ...(await Promise.all(
        worlds.map(({ store }) => store.execute("rotateKeys", { account: "acc", force: true })),
      )),
    );
  }
  const links = new Map(pairs.map(({ current, next }) => [current, next]));
  expect(links.size).toBe(20);
  let last = "sig_acc_2";
  for (let length = 0; length < 20; length++) last = links.get(last) ?? "broken";
  expect((await worlds[0].store.read.account("acc"))?.signingKeys.next).toBe(last);
});

test("a message settled on one node and cancelled on another has one outcome", async () => {
  const { worlds } = await openNodes();
  const [a, b] = worlds;
  const ends = new Set<string>();
  for (let round = 0; round < 40; round++) {
    const delivery = await a.sent();
    const cancelling = () => b.store.execute("cancel", { account: "acc", messageIds: [delivery.message.id] });
    const early = round % 2 === 0 ? cancelling() : null;
    const [{ became }, { cancelled }] = await Promise.all([a.settle(delivery), early ?? cancelling()]);
    ends.add(`${became} ${cancelled}`);
    const states = await a.states(delivery.message.id);
    expect(states).toEqual(
      became === "cancelled"
        ? ["CREATED", "ACTIVE", "CANCEL_REQUESTED", "CANCELLED"]
        : ["CREATED", "ACTIVE", "DELIVERED"],
    );
  }
  for (const end of ends) expect(["delivered 0", "cancelled 1"]).toContain(end);
});

test("a schedule that several nodes find due at the same time fires once", async () => {
  const { worlds, clock } = await openNodes(3);
  const { body, ...messageInput } = makeInput();
  for (const id of ["s1", "s2", "s3"]) {
    await worlds[0].store.execute("createSchedule", {
      account: "acc",
      id,
      cron: "* * * * *",
      messageInput,
      body,
    });
  }
  const made: Delivery[] = [];
  const claim = async (world: StoreFixture): Promise<void> => {
    const deliveries = await world.claim();
    made.push(...deliveries);
    await Promise.all(deliveries.map((delivery) => world.settle(delivery)));
  };
  for (let minute = 0; minute < 10; minute++) {
    clock.now += 60_000;
    await Promise.all(worlds.map(claim));
    // Claims messages that another node had locked, or that were only created by the other claims.
    await claim(worlds[0]);
  }
  const times = made.map(({ message }) => `${message.scheduleId} ${message.createdAt}`);
  expect(new Set(times).size).toBe(30);
  expect(times).toHaveLength(30);
});

test("an outcome reported for another node's lease does not count", async () => {
  const { worlds, clock } = await openNodes();
  const [a, b] = worlds;
  const delivery = await a.sent();
  expect(await b.store.execute("settle", makeOutcome(delivery))).toEqual({ became: "late" });
  clock.now += spans.lease;
  expect(await b.claim()).toMatchObject([{ attempt: 1 }]);
  expect(await a.settle(delivery)).toEqual({ became: "late" });
});

test.each(Object.keys(objectMakers) as Kind[])(
  "an account's limit of %s holds across all nodes",
  async (kind) => {
    const { worlds } = await openNodes(3);
    await limitTo(worlds[0], { [kind]: 7 });
    let made = 0;
    for (const turn of ["a", "b", "c"]) {
      const asked = worlds.flatMap((world, node) =>
        [1, 2, 3, 4].map((n) => objectMakers[kind](world, `${turn}${node}${n}`)),
      );
      made += (await countMade(asked)).made;
    }
    expect(made).toBe(7);
  },
);
