import { expect, test } from "vitest";
import { spans } from "../../../src/core/values/limits.ts";
import type { Delivery } from "../../../src/core/model/message.ts";
import { freshDatabase } from "../../postgres.ts";
import { createRandom } from "../createRandom.ts";
import type { Kind } from "../contract/objectLimits.ts";
import { limitTo, countMade, objectMakers } from "../contract/objectLimits.ts";
import { ask, openNode } from "./postgresDatabase.ts";
import { makeAccount, makeCallback, closeAfterTest, makeInput, makeOutcome, TestClock, StoreFixture } from "../storeFixture.ts";

// Several nodes on one database, at the same time. What they must not do is happen twice, get lost, or wait for each other in a circle.

async function nodes(count = 2): Promise<{ url: string; clock: TestClock; worlds: [StoreFixture, StoreFixture, ...StoreFixture[]] }> {
  const url = await freshDatabase();
  const clock = new TestClock();
  const names = Array.from({ length: count }, (_, index) => `nod_${index}`);
  // At the same time as well: of those that find no tables one makes them.
  const worlds = await Promise.all(
    names.map(async (node, index) => new StoreFixture(closeAfterTest(await openNode(url, clock, { node, seed: index + 1 })), clock, node)),
  );
  const [a, b, ...others] = worlds;
  if (!a || !b) throw new Error("two at least");
  await a.account();
  return { url, clock, worlds: [a, b, ...others] };
}

const idsOf = (deliveries: readonly Delivery[]): string[] => deliveries.map(({ message }) => message.id);

test("nodes that open an empty database at once find one account between them", async () => {
  const { worlds } = await nodes(4);
  const made = await Promise.all(worlds.map(({ store }) => store.execute("createAccount", makeAccount("second"))));
  for (const account of made) expect(account).toEqual(made[0]);
  expect(await worlds[1].store.read.accounts()).toHaveLength(2);
});

test("a token that is revoked on one node is heard of on the others, once that is done", async () => {
  const { worlds } = await nodes(2);
  const [a, b] = worlds;
  const asked = { name: "", verbs: ["read"], destinations: [], expiresAt: null } as const;
  const { id } = await a.store.execute("createToken", { account: "acc", hash: "h", scope: null, ...asked });
  expect(await b.store.read.tokenByHash("h")).toMatchObject({ id });
  const heard = new Promise<void>((resolve) => b.store.onAccounts(resolve));
  await a.store.execute("revokeToken", { account: "acc", id });
  await heard;
  expect(await b.store.read.tokenByHash("h")).toBeNull();
});

test("a change of an account is heard of on every node, once it is made", async () => {
  const { worlds } = await nodes(2);
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

test("nodes that claim at once get each message once", async () => {
  const { worlds, clock } = await nodes(3);
  const [a] = worlds;
  const results = await a.publish(Array.from({ length: 300 }, () => makeInput({ delay: 1 })));
  clock.now += 1;
  for (const world of worlds) world.capacity = { total: 1_000, perHost: 1_000 };
  const claimed: Delivery[] = [];
  for (let turn = 0; turn < 20; turn++) claimed.push(...(await Promise.all(worlds.map((world) => world.claim(17)))).flat());
  expect(claimed).toHaveLength(300);
  expect(new Set(idsOf(claimed))).toEqual(new Set(results.map((result) => ("messageId" in result ? result.messageId : ""))));
  for (const world of worlds) expect(await world.claim()).toEqual([]);
});

test("nodes that publish with one deduplication id at once make one message", async () => {
  const { worlds } = await nodes(3);
  const [a] = worlds;
  for (let round = 0; round < 20; round++) {
    // In different orders, so that they could wait for each other in a circle.
    const letters = ["x", "y", "z"].map((id) => makeInput({ deduplication: `${id}${round}`, delay: 1_000 }));
    const all = await Promise.all(worlds.map((world, index) => world.publish(index === 1 ? letters.toReversed() : letters)));
    const first = all[0];
    const second = all[1]?.toReversed();
    const third = all[2];
    for (const position of [0, 1, 2]) {
      const results = [first, second, third].map((list) => list?.[position]);
      expect(new Set(results.map((result) => result && "messageId" in result && result.messageId)).size).toBe(1);
      expect(results.filter((result) => result && "deduplicated" in result && !result.deduplicated)).toHaveLength(1);
    }
  }
  expect((await a.store.read.unfinished({ account: "acc", filter: {}, cursor: null, count: 100 })).messageIds).toHaveLength(60);
});

test("nodes that count at once, and that share the requests of a day, lose nothing and give no more", async () => {
  const { worlds } = await nodes(3);
  await worlds[0].account("free");
  await worlds[0].store.execute("changeAccount", { account: "acc", change: { limits: { requestsPerDay: 40, requestsPerDayHard: 50 } } });
  const publishes = Array.from({ length: 60 }, (_, index) => {
    const world = worlds[index % worlds.length] ?? worlds[0];
    return Promise.all([world.publish([makeInput({ delay: 1_000 })]), world.publish([makeInput({ delay: 1_000 })], "free")]);
  });
  const results = (await Promise.all(publishes)).map(([[limited]]) => limited);
  expect(results.filter((one) => one && "messageId" in one)).toHaveLength(50);
  expect(results.filter((one) => one && "refused" in one && one.refused === "day-limit-exceeded")).toHaveLength(10);
  for (const [account, count] of [
    ["acc", 50],
    ["free", 60],
  ] as const) {
    const rows = await worlds[1].store.read.usage(account, "3h", 0);
    expect(rows).toHaveLength(3);
    expect(rows.reduce((sum, { messages }) => sum + messages, 0)).toBe(count);
  }
});

test("nodes that rotate keys at once make a chain in which no pair is lost", async () => {
  const { worlds } = await nodes();
  const pairs = [];
  for (let round = 0; round < 10; round++) {
    pairs.push(...(await Promise.all(worlds.map(({ store }) => store.execute("rotateKeys", { account: "acc", force: true })))));
  }
  const links = new Map(pairs.map(({ current, next }) => [current, next]));
  expect(links.size).toBe(20);
  let last = "sig_acc_2";
  for (let length = 0; length < 20; length++) last = links.get(last) ?? "broken";
  expect((await worlds[0].store.read.account("acc"))?.signingKeys.next).toBe(last);
});

test("a message that is settled on one node and cancelled on the other ends one way", async () => {
  const { worlds } = await nodes();
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
      became === "cancelled" ? ["CREATED", "ACTIVE", "CANCEL_REQUESTED", "CANCELLED"] : ["CREATED", "ACTIVE", "DELIVERED"],
    );
  }
  for (const end of ends) expect(["delivered 0", "cancelled 1"]).toContain(end);
});

test("lines: each message is sent once and none is forgotten while nodes claim, settle, cancel and publish at once", async () => {
  const { worlds, clock, url } = await nodes(3);
  const random = createRandom(7);
  const ended = new Map<string, number>();
  const known = new Set<string>();
  const running = new Map<StoreFixture, Delivery[]>(worlds.map((world) => [world, []]));
  for (const world of worlds) world.capacity = { total: 4, perHost: 2 };
  const end = (id: string): unknown => ended.set(id, (ended.get(id) ?? 0) + 1);

  const turn = async (world: StoreFixture, publishing: boolean): Promise<void> => {
    const mine = running.get(world) ?? [];
    const work: Promise<unknown>[] = [world.store.execute("claim", { limit: 4 })];
    for (const delivery of mine.splice(0, 1 + Math.floor(random() * 3))) {
      work.push(world.settle(delivery).then(({ became }) => became === "delivered" && end(delivery.message.id)));
    }
    if (publishing) {
      const letters = ["one", "one", "two"].map((host) => makeInput({ url: `https://${host}.example/` }));
      work.push(
        world.publish(letters).then((results) => results.forEach((result) => "messageId" in result && known.add(result.messageId))),
      );
    }
    const doomed = [...known].find((id) => !ended.has(id) && random() < 0.05);
    if (doomed) {
      const cancelling = world.store.execute("cancel", { account: "acc", messageIds: [doomed] });
      work.push(cancelling.then(({ cancelled }) => cancelled === 1 && end(doomed)));
    }
    await Promise.all(work);
    mine.push(...world.delivered());
  };

  for (let round = 0; round < 25; round++) {
    await Promise.all(worlds.map((world) => turn(world, true)));
    clock.now += 10;
  }
  for (let round = 0; round < 400 && ended.size < known.size; round++) {
    await Promise.all(worlds.map((world) => turn(world, false)));
    clock.now += spans.waitlistCheck / 10;
  }
  expect(known.size).toBe(225);
  expect(new Set(ended.keys())).toEqual(known);
  expect([...ended.values()].every((count) => count === 1)).toBe(true);
  // What was cancelled while it was being sent stays until its request has ended.
  for (const [world, mine] of running) for (const delivery of [...mine, ...world.delivered()]) await world.settle(delivery);
  clock.now += spans.waitlistCheck;
  for (const world of worlds) await world.claim();
  expect(
    await ask(url, "select (select count(*) from host_waitlists)::int as lines, (select count(*) from messages)::int as messages"),
  ).toEqual([{ lines: 0, messages: 0 }]);
});

test.each<[string, { globalParallelism?: number; parallelism?: number }]>([
  ["in all", { globalParallelism: 4 }],
  ["to each endpoint", { parallelism: 2 }],
  ["in all and to each endpoint", { globalParallelism: 5, parallelism: 2 }],
])(
  "what an account may have under way %s holds for all nodes together, with keys and without, and nobody is forgotten",
  { tags: "long" },
  async (_, limits) => {
    const { worlds, clock, url } = await nodes(3);
    await worlds[0].store.execute("changeAccount", { account: "acc", change: { limits } });
    const count = 180;
    const key = (name: string) => ({ flowControl: { key: name, parallelism: 3, rate: null, period: null } });
    const sent: string[] = [];
    const published = new Set<string>();
    let isWorking = true;
    const peaks = new Map<string, number>();
    const watch = async (): Promise<void> => {
      const ofFlow = `m.account = limiters.account and (limiters.id = 'endpoint:' || m.endpoint or limiters.id = 'account:')`;
      const actives = `(select count(*) from messages m where m.state = 'active' and ${ofFlow})::int`;
      const standing = `(select count(*) from messages m where m.waitlist = limiters.id)::int`;
      while (isWorking) {
        const seen = await ask(
          url,
          `select substr(id, strpos(id, ':') + 1) as endpoint, running, waiting, ${actives} as actives, ${standing} as standing
            from limiters where id = 'account:' or id like 'endpoint:%'`,
        );
        for (const { endpoint, running, waiting, actives, standing } of seen) {
          expect([endpoint, running, waiting]).toEqual([endpoint, actives, standing]);
          peaks.set(String(endpoint), Math.max(peaks.get(String(endpoint)) ?? 0, Number(running)));
        }
      }
    };
    const work = async (world: StoreFixture): Promise<void> => {
      let mine: Delivery[] = [];
      for (let round = 0; round < 2_000 && (sent.length < published.size || published.size < count); round++) {
        const doing: Promise<unknown>[] = [world.store.execute("claim", { limit: 64 }), ...mine.map((delivery) => world.settle(delivery))];
        if (published.size < count) {
          const letters = [{}, key("k"), key("l"), {}, { queue: "q" }].map((over, at) =>
            makeInput({ url: `https://gateway.example/${at % 3}?${round}`, ...over }),
          );
          doing.push(
            world.publish(letters).then((results) => results.forEach((one) => "messageId" in one && published.add(one.messageId))),
          );
        }
        await Promise.all(doing);
        mine = world.delivered();
        sent.push(...idsOf(mine));
        // Who was passed on to another line is looked at again after a moment.
        clock.now += 5;
      }
      await Promise.all(mine.map((delivery) => world.settle(delivery)));
    };
    const watching = watch();
    await Promise.all(worlds.map(work)).finally(() => (isWorking = false));
    await watching;
    const most = (endpoint: string): number => (endpoint === "" ? limits.globalParallelism : limits.parallelism) ?? 0;
    for (const [endpoint, peak] of peaks) expect(peak, endpoint).toBeLessThanOrEqual(most(endpoint));
    const reached = [...peaks].filter(([endpoint, peak]) => peak === most(endpoint)).map(([endpoint]) => endpoint);
    expect(reached).toContain("globalParallelism" in limits ? "" : "https://gateway.example/0");
    expect(new Set(sent)).toEqual(published);
    expect(sent).toHaveLength(published.size);
    expect(worlds.flatMap(({ faults }) => faults)).toEqual([]);
    expect(await ask(url, "select sum(running)::int as running, sum(waiting)::int as waiting from limiters")).toEqual([
      { running: 0, waiting: 0 },
    ]);
    expect(await ask(url, "select id from limiters where id like 'endpoint:%'")).toEqual([]);
  },
);

test("a key's limit holds for all nodes together, and each of its messages is sent once", { tags: "long" }, async () => {
  const { worlds, clock, url } = await nodes(2);
  const count = 500;
  const flowControl = { key: "k", parallelism: 3, rate: null, period: null };
  const sent: string[] = [];
  const published = new Set<string>();
  const running = new Map<StoreFixture, Delivery[]>(worlds.map((world) => [world, []]));
  let isWorking = true;

  /** One look at the database sees one moment of it. */
  const watch = async (): Promise<void> => {
    const actives = `(select count(*) from messages where state = 'active')::int`;
    const waiting = `(select count(*) from messages where waitlist = 'key:k')::int`;
    while (isWorking) {
      const [flow] = await ask(url, `select running, waiting, ${actives} as actives, ${waiting} as standing from limiters`);
      if (!flow) continue;
      expect(flow["running"]).toBeLessThanOrEqual(3);
      expect([flow["running"], flow["waiting"]]).toEqual([flow["actives"], flow["standing"]]);
    }
  };
  const turn = async (world: StoreFixture): Promise<void> => {
    const mine = running.get(world) ?? [];
    const work: Promise<unknown>[] = [
      world.store.execute("claim", { limit: 64 }),
      ...mine.splice(0).map((delivery) => world.settle(delivery)),
    ];
    if (published.size < count) {
      const letters = Array.from({ length: 10 }, (_, index) => makeInput({ url: `https://host-${index % 3}.example/`, flowControl }));
      work.push(world.publish(letters).then((results) => results.forEach((one) => "messageId" in one && published.add(one.messageId))));
    }
    await Promise.all(work);
    mine.push(...world.delivered());
    sent.push(...idsOf(mine));
  };
  const work = async (world: StoreFixture): Promise<void> => {
    for (let round = 0; round < 2_000 && (sent.length < published.size || published.size < count); round++) await turn(world);
    await turn(world);
  };
  const watching = watch();
  await Promise.all(worlds.map(work)).finally(() => (isWorking = false));
  await watching;
  for (const world of worlds) await turn(world);
  expect(published.size).toBeGreaterThanOrEqual(count);
  expect(sent).toHaveLength(published.size);
  expect(new Set(sent)).toEqual(published);
  expect(worlds.flatMap(({ faults }) => faults)).toEqual([]);
  const left = `select running, waiting, (select count(*) from messages)::int as messages, due_at > ${clock.now} as is_idle from limiters`;
  expect(await ask(url, left)).toEqual([{ running: 0, waiting: 0, messages: 0, is_idle: true }]);
});

test("a queue lets one message through at a time, whatever node it is on, and after its callback", async () => {
  const { worlds, url } = await nodes(2);
  const order: string[] = [];
  const running = new Map<StoreFixture, Delivery[]>(worlds.map((world) => [world, []]));
  const turn = async (world: StoreFixture): Promise<void> => {
    const mine = running.get(world) ?? [];
    await Promise.all([world.store.execute("claim", { limit: 8 }), ...mine.splice(0).map((delivery) => world.settle(delivery))]);
    mine.push(...world.delivered());
    order.push(...mine.map(({ message }) => message.reportsOn?.messageId ?? message.id));
  };
  const results = await worlds[0].publish(
    Array.from({ length: 25 }, () => makeInput({ queue: "q", callback: makeCallback("https://told.example/") })),
  );
  const ids = results.flatMap((one) => ("messageId" in one ? [one.messageId] : []));
  running.get(worlds[0])?.push(...worlds[0].delivered());
  order.push(...ids.slice(0, 1));
  for (let round = 0; round < 300 && order.length < 2 * ids.length; round++) await Promise.all(worlds.map(turn));
  for (const world of worlds) await turn(world);
  // Each message, then what tells of it.
  expect(order).toEqual(ids.flatMap((id) => [id, id]));
  expect(await ask(url, "select running, waiting, (select count(*) from queue_slots)::int as slots from limiters")).toEqual([
    { running: 0, waiting: 0, slots: 0 },
  ]);
});

test("a schedule that several nodes find due at once fires once", async () => {
  const { worlds, clock } = await nodes(3);
  const { body, ...messageInput } = makeInput();
  for (const id of ["s1", "s2", "s3"]) {
    await worlds[0].store.execute("createSchedule", { account: "acc", id, cron: "* * * * *", messageInput, body });
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
    // What another node had locked, and what was only made.
    await claim(worlds[0]);
  }
  const times = made.map(({ message }) => `${message.scheduleId} ${message.createdAt}`);
  expect(new Set(times).size).toBe(30);
  expect(times).toHaveLength(30);
});

test("a report on one node's lease does not count on another", async () => {
  const { worlds, clock } = await nodes();
  const [a, b] = worlds;
  const delivery = await a.sent();
  expect(await b.store.execute("settle", makeOutcome(delivery))).toEqual({ became: "late" });
  clock.now += spans.lease;
  expect(await b.claim()).toMatchObject([{ attempt: 1 }]);
  expect(await a.settle(delivery)).toEqual({ became: "late" });
});

test.each(Object.keys(objectMakers) as Kind[])(
  "an account has no more %s than it may have, at whichever node they are made",
  async (kind) => {
    const { worlds } = await nodes(3);
    await limitTo(worlds[0], { [kind]: 7 });
    let made = 0;
    for (const turn of ["a", "b", "c"]) {
      const asked = worlds.flatMap((world, node) => [1, 2, 3, 4].map((n) => objectMakers[kind](world, `${turn}${node}${n}`)));
      made += (await countMade(asked)).made;
    }
    expect(made).toBe(7);
  },
);
