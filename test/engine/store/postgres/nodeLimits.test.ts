import { expect, test } from "vitest";
import { spans } from "../../../../src/engine/core/values/limits.ts";
import type { Delivery } from "../../../../src/engine/core/model/delivery.ts";
import { createRandom } from "../createRandom.ts";
import { ask } from "./postgresDatabase.ts";
import { idsOf, openNodes } from "./severalNodes.ts";
import type { StoreFixture } from "../storeFixture.ts";
import { makeCallback, makeInput } from "../storeFixture.ts";

// Several nodes share waitlists and limits, and use them at the same time. Each message is sent once.

test("held messages are sent once while nodes claim, settle, cancel and publish", async () => {
  const { worlds, clock, url } = await openNodes(3);
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
      work.push(
        world.settle(delivery).then(({ became }) => became === "delivered" && end(delivery.message.id)),
      );
    }
    if (publishing) {
      const inputs = ["one", "one", "two"].map((host) => makeInput({ url: `https://${host}.example/` }));
      work.push(
        world
          .publish(inputs)
          .then((results) =>
            results.forEach((result) => "messageId" in result && known.add(result.messageId)),
          ),
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
  // A message that was cancelled during its delivery stays until its request has ended.
  for (const [world, mine] of running)
    for (const delivery of [...mine, ...world.delivered()]) await world.settle(delivery);
  clock.now += spans.waitlistCheck;
  for (const world of worlds) await world.claim();
  expect(
    await ask(
      url,
      "select (select count(*) from host_waitlists)::int as lines, " +
        "(select count(*) from messages)::int as messages",
    ),
  ).toEqual([{ lines: 0, messages: 0 }]);
});

test.each<[string, { globalParallelism?: number; parallelism?: number }]>([
  ["of messages in flight", { globalParallelism: 4 }],
  ["per endpoint", { parallelism: 2 }],
  ["of messages in flight and per endpoint", { globalParallelism: 5, parallelism: 2 }],
])(
  "an account's limit %s holds across all nodes, with keys and without, and sends every message",
  { tags: "long" },
  async (_, limits) => {
    const { worlds, clock, url } = await openNodes(3);
    await worlds[0].store.execute("changeAccount", { account: "acc", change: { limits } });
    const count = 180;
    const key = (name: string) => ({ flowControl: { key: name, parallelism: 3, rate: null, period: null } });
    const sent: string[] = [];
    const published = new Set<string>();
    let isWorking = true;
    const peaks = new Map<string, number>();
    const watch = async (): Promise<void> => {
      const ofFlow =
        "m.account = limiters.account and " +
        "(limiters.id = 'endpoint:' || m.endpoint or limiters.id = 'account:')";
      const actives = `(select count(*) from messages m where m.state = 'active' and ${ofFlow})::int`;
      const standing = "(select count(*) from messages m where m.waitlist = limiters.id)::int";
      while (isWorking) {
        const seen = await ask(
          url,
          `select substr(id, strpos(id, ':') + 1) as endpoint, running, waiting,
              ${actives} as actives, ${standing} as standing
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
      for (
        let round = 0;
        round < 2_000 && (sent.length < published.size || published.size < count);
        round++
      ) {
        const doing: Promise<unknown>[] = [
          world.store.execute("claim", { limit: 64 }),
          ...mine.map((delivery) => world.settle(delivery)),
        ];
        if (published.size < count) {
          const inputs = [{}, key("k"), key("l"), {}, { queue: "q" }].map((over, at) =>
            makeInput({ url: `https://gateway.example/${at % 3}?${round}`, ...over }),
          );
          doing.push(
            world
              .publish(inputs)
              .then((results) =>
                results.forEach((one) => "messageId" in one && published.add(one.messageId)),
              ),
          );
        }
        await Promise.all(doing);
        mine = world.delivered();
        sent.push(...idsOf(mine));
        // A message that moved to another waitlist is checked again after a moment.
        clock.now += 5;
      }
      await Promise.all(mine.map((delivery) => world.settle(delivery)));
    };
    const watching = watch();
    await Promise.all(worlds.map(work)).finally(() => (isWorking = false));
    await watching;
    const most = (endpoint: string): number =>
      (endpoint === "" ? limits.globalParallelism : limits.parallelism) ?? 0;
    for (const [endpoint, peak] of peaks) expect(peak, endpoint).toBeLessThanOrEqual(most(endpoint));
    const reached = [...peaks]
      .filter(([endpoint, peak]) => peak === most(endpoint))
      .map(([endpoint]) => endpoint);
    expect(reached).toContain("globalParallelism" in limits ? "" : "https://gateway.example/0");
    expect(new Set(sent)).toEqual(published);
    expect(sent).toHaveLength(published.size);
    expect(worlds.flatMap(({ faults }) => faults)).toEqual([]);
    expect(
      await ask(url, "select sum(running)::int as running, sum(waiting)::int as waiting from limiters"),
    ).toEqual([{ running: 0, waiting: 0 }]);
    expect(await ask(url, "select id from limiters where id like 'endpoint:%'")).toEqual([]);
  },
);

test(
  "a key's limit holds across all nodes, and each of its messages is sent once",
  { tags: "long" },
  async () => {
    const { worlds, clock, url } = await openNodes(2);
    const count = 500;
    const flowControl = { key: "k", parallelism: 3, rate: null, period: null };
    const sent: string[] = [];
    const published = new Set<string>();
    const running = new Map<StoreFixture, Delivery[]>(worlds.map((world) => [world, []]));
    let isWorking = true;

    /** Each query reads the database as of one moment. */
    const watch = async (): Promise<void> => {
      const actives = `(select count(*) from messages where state = 'active')::int`;
      const waiting = `(select count(*) from messages where waitlist = 'key:k')::int`;
      while (isWorking) {
        const [flow] = await ask(
          url,
          `select running, waiting, ${actives} as actives, ${waiting} as standing from limiters`,
        );
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
        const inputs = Array.from({ length: 10 }, (_, index) =>
          makeInput({ url: `https://host-${index % 3}.example/`, flowControl }),
        );
        work.push(
          world
            .publish(inputs)
            .then((results) => results.forEach((one) => "messageId" in one && published.add(one.messageId))),
        );
      }
      await Promise.all(work);
      mine.push(...world.delivered());
      sent.push(...idsOf(mine));
    };
    const work = async (world: StoreFixture): Promise<void> => {
      for (let round = 0; round < 2_000 && (sent.length < published.size || published.size < count); round++)
        await turn(world);
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
    const left =
      "select running, waiting, (select count(*) from messages)::int as messages, " +
      `due_at > ${clock.now} as is_idle from limiters`;
    expect(await ask(url, left)).toEqual([{ running: 0, waiting: 0, messages: 0, is_idle: true }]);
  },
);

test("across nodes, a queue sends its next message only after the callback of the one before", async () => {
  const { worlds, url } = await openNodes(2);
  const order: string[] = [];
  const running = new Map<StoreFixture, Delivery[]>(worlds.map((world) => [world, []]));
  const turn = async (world: StoreFixture): Promise<void> => {
    const mine = running.get(world) ?? [];
    await Promise.all([
      world.store.execute("claim", { limit: 8 }),
      ...mine.splice(0).map((delivery) => world.settle(delivery)),
    ]);
    mine.push(...world.delivered());
    order.push(...mine.map(({ message }) => message.reportsOn?.messageId ?? message.id));
  };
  const results = await worlds[0].publish(
    Array.from({ length: 25 }, () =>
      makeInput({ queue: "q", callback: makeCallback("https://told.example/") }),
    ),
  );
  const ids = results.flatMap((one) => ("messageId" in one ? [one.messageId] : []));
  running.get(worlds[0])?.push(...worlds[0].delivered());
  order.push(...ids.slice(0, 1));
  for (let round = 0; round < 300 && order.length < 2 * ids.length; round++)
    await Promise.all(worlds.map(turn));
  for (const world of worlds) await turn(world);
  // Each message is followed by its callback.
  expect(order).toEqual(ids.flatMap((id) => [id, id]));
  expect(
    await ask(url, "select running, waiting, (select count(*) from queue_slots)::int as slots from limiters"),
  ).toEqual([{ running: 0, waiting: 0, slots: 0 }]);
});
