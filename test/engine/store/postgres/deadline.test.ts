import { randomBytes } from "node:crypto";
import { onTestFinished, expect, test } from "vitest";
import type { Millis } from "../../../../src/engine/core/values/basics.ts";
import { spans } from "../../../../src/engine/core/values/limits.ts";
import { postgresStore } from "../../../../src/engine/store/postgres/database.ts";
import {
  batchTimeout,
  beforeDeadline,
  formatSilenceLimit,
  silenceForWriting,
  timeToStore,
  withDeadline,
} from "../../../../src/engine/store/postgres/deadline.ts";
import { Interrupted } from "../../../../src/engine/store/layout/storageErrors.ts";
import { freshDatabase, startPostgres } from "../../../postgres.ts";
import { createRandom } from "../createRandom.ts";
import {
  closeAfterTest,
  makeCallback,
  makeInput,
  createSteppedClock,
  StoreFixture,
  TestClock,
} from "../storeFixture.ts";
import { ask } from "./postgresDatabase.ts";
import { slowLink } from "./slowLink.ts";
import { waitForStandby } from "./standby.ts";
import { vanishingHost } from "./vanishingHost.ts";

const notStored = {
  code: "unavailable",
  message: "storage unavailable: nothing was stored; retry later",
};
const unknown = {
  code: "outcome-unknown",
  message:
    "storage unavailable: the request may or may not have been stored; check before you retry; " +
    "a repeat with the same deduplication id creates no second message",
};

/** The deadline of a batch passes when the test decides, and no other long pause ends. */
class HeldClock extends TestClock {
  readonly #pauses = new Set<() => void>();
  /** The long pauses that began. */
  readonly times: Millis[] = [];

  readonly pace = () => {
    const stepped = createSteppedClock(this);
    const sleep = (until: Millis, wake: AbortSignal): Promise<void> => {
      const time = until - this.now;
      if (time < 1_000) return stepped.sleep(until, wake);
      this.times.push(time);
      return new Promise((resolve) => {
        const end = (): void => {
          this.#pauses.delete(end);
          resolve();
        };
        if (time === batchTimeout) this.#pauses.add(end);
        wake.addEventListener("abort", end);
      });
    };
    return { ...stepped, sleep };
  };

  /** Lets the deadline of the batch in flight pass. */
  passDeadline(): void {
    for (const end of this.#pauses) end();
  }
}

async function nodeAt(url: string): Promise<{ world: StoreFixture; clock: HeldClock }> {
  const clock = new HeldClock();
  const options = { url, node: "nod_a", random: createRandom(1), now: () => clock.now, clock: clock.pace() };
  return { world: new StoreFixture(closeAfterTest(await postgresStore(options)), clock, "nod_a"), clock };
}

const refusalOf = (call: Promise<unknown>): Promise<unknown> => call.catch((error: unknown) => error);

const waitingFor = (url: string, event: string) =>
  ask(url, `select 1 as found from pg_stat_activity where ${event} and application_name = 'waypost writer'`);

/** Waits until a transaction of the node waits for a standby, or for a lock. */
async function isHanging(url: string, event: "wait_event = 'SyncRep'" | "wait_event_type = 'Lock'") {
  await expect.poll(() => waitingFor(url, event), { timeout: 30_000, interval: 20 }).not.toEqual([]);
}

test("a commit without its standby is given up, and a repeat creates no second message", async () => {
  const postgres = await startPostgres({ more: { synchronous_commit: "on" } });
  onTestFinished(() => postgres.kill());
  const url = await freshDatabase(postgres.url);
  const { world, clock } = await nodeAt(url);
  await world.account();
  const input = makeInput({ deduplication: "order-1" });
  await waitForStandby(url, "absent");
  const first = refusalOf(world.publish([input]));
  await isHanging(url, "wait_event = 'SyncRep'");
  clock.passDeadline();
  expect(await first).toMatchObject(unknown);
  expect(world.delivered(), "deliveries from memory").toEqual([]);
  const second = refusalOf(world.publish([input]));
  await isHanging(url, "wait_event_type = 'Lock'");
  clock.passDeadline();
  expect(await second).toMatchObject(notStored);

  await waitForStandby(url, "");
  await expect.poll(() => ask(url, "select id from messages"), { timeout: 20_000 }).toHaveLength(1);
  const [stored] = await ask(url, "select id from messages");
  expect(await world.publish([input])).toMatchObject([{ messageId: stored?.["id"], deduplicated: true }]);
  expect(world.delivered()).toEqual([]);
  clock.now += spans.lease + 1;
  expect((await world.claim()).map(({ message }) => message.id)).toEqual([stored?.["id"]]);
  expect(await ask(url, "select 1 from messages")).toHaveLength(1);
});

test("a commit whose response is lost is given up although the host answers probes", async () => {
  const host = await vanishingHost(await freshDatabase());
  const { world, clock } = await nodeAt(host.url);
  await world.account();
  let isSent = false;
  let isLost = false;
  host.vanish((data) => {
    isSent ||= data.includes("commit\0");
    const isResponse = isSent && data.includes("COMMIT\0");
    isLost ||= isResponse;
    return isResponse;
  });
  const input = makeInput({ deduplication: "order-1" });
  const first = refusalOf(world.publish([input]));
  await expect.poll(() => isLost, { timeout: 20_000 }).toBe(true);
  clock.passDeadline();
  expect(await first).toMatchObject(unknown);
  host.comeBack();
  expect(world.delivered(), "deliveries from memory").toEqual([]);
  const [{ messageId = "" } = {}] = (await world.publish([input])) as { messageId?: string }[];
  expect(await ask(host.url, "select id from messages")).toEqual([{ id: messageId }]);
  clock.now += spans.lease + 1;
  expect((await world.claim()).map(({ message }) => message.id)).toEqual([messageId]);
});

test("a batch has longer for large bodies that it stores, and for those that it loads to send", async () => {
  const host = await vanishingHost(await freshDatabase());
  const first = await nodeAt(host.url);
  await first.world.account();
  const body = randomBytes(6_000_000);
  const [{ messageId = "" } = {}] = (await first.world.publish([makeInput({ body })])) as {
    messageId?: string;
  }[];
  expect(first.clock.times).toContain(batchTimeout + 3_000);
  await first.world.store.close();
  const { world, clock } = await nodeAt(host.url);
  clock.now += spans.lease + 1;
  // The time of a batch without bodies is over when the body begins to arrive.
  host.vanish((data) => {
    if (data.length > 5_000) clock.passDeadline();
    return false;
  });
  expect((await world.claim()).map(({ message }) => message.id)).toEqual([messageId]);
  expect(clock.times).toContain(3_000);
});

// The text of the body arrives for 3 s, and a usual transaction may be silent for 2 s.
test("a large body is stored and sent over a slow link", { tags: "long" }, async () => {
  const link = await slowLink(await freshDatabase(), 4_000_000);
  const clock = new TestClock();
  const options = { node: "nod_a", random: createRandom(1), now: () => clock.now };
  const store = await postgresStore({ ...options, url: link.url, clock: createSteppedClock(clock) });
  const world = new StoreFixture(closeAfterTest(store), clock, "nod_a");
  await world.account();
  const delay = 60_000;
  // PostgreSQL reads a statement that it does not know yet before its values, so the silence ends there.
  const callback = makeCallback("https://back.example/");
  await world.settle(await world.sent({ callback }));
  const prepared = await world.send({ delay, callback });
  const writers = link.countWriters();
  const id = await world.send({ delay, callback, body: randomBytes(6_000_000) });
  expect(link.countWriters(), "connections of repeated tries").toBe(writers);
  clock.now += delay;
  const claimed = (await world.claim()).filter(({ message }) => [prepared, id].includes(message.id));
  expect(claimed.map(({ message }) => message.id)).toEqual([prepared, id]);
  expect(link.countWriters()).toBe(writers);
  // The callback contains the body, so that the outcome of a small response writes more than was published.
  for (const delivery of claimed) expect(await world.settle(delivery)).toMatchObject({ became: "delivered" });
  expect(link.countWriters(), "connections of repeated tries").toBe(writers);
});

test("no caller waits for more than 13 s, whatever the size of a body", () => {
  expect([0, 1_999, 6_000_000, 64_000_000].map((bytes) => timeToStore(bytes))).toEqual([0, 0, 3_000, 5_000]);
});

test("only a batch with large bodies may be silent for longer than 2 s", () => {
  const formatFor = (bytes: number) =>
    formatSilenceLimit({ time: batchTimeout + timeToStore(bytes) }, batchTimeout);
  expect(formatFor(499_999)).toBe("");
  expect(formatFor(500_000)).toBe("; set local idle_in_transaction_session_timeout = 8250");
});

test("more silence is allowed for large bodies that are written, and for at most 30 s", () => {
  expect([499_999, 500_000, 900_000_000].map((bytes) => silenceForWriting(bytes, batchTimeout))).toEqual([
    null,
    8_250,
    38_000,
  ]);
});

test("a deadline that is extended passes later, and a second try extends it only by the rest", async () => {
  const waits: { time: Millis; end(): void }[] = [];
  const pause = (time: Millis): Promise<void> => new Promise((end) => waits.push({ time, end }));
  const turn = (): Promise<void> => new Promise((resolve) => setImmediate(resolve));
  await withDeadline(
    async ({ signal, willMove }) => {
      willMove(400_000);
      willMove(600_000);
      waits[0]?.end();
      await turn();
      expect(signal.aborted).toBe(false);
      waits[1]?.end();
      await turn();
      expect(signal.aborted).toBe(true);
    },
    { time: 1_000, pause },
  );
  expect(waits.map(({ time }) => time)).toEqual([1_000, 300]);
});

test("a wait without a transaction ends at the deadline, and nothing begins after it", async () => {
  const deadline = new AbortController();
  expect(await beforeDeadline(deadline.signal, Promise.resolve("open"))).toBe("open");
  const waiting = refusalOf(beforeDeadline(deadline.signal, new Promise(() => undefined)));
  deadline.abort();
  expect(await waiting).toBeInstanceOf(Interrupted);
  expect(await refusalOf(beforeDeadline(deadline.signal, Promise.resolve("open")))).toBeInstanceOf(
    Interrupted,
  );
});
