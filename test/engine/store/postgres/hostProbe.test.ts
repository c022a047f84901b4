import { expect, test } from "vitest";
import { postgresStore } from "../../../../src/engine/store/postgres/database.ts";
import { batchTimeout } from "../../../../src/engine/store/postgres/deadline.ts";
import { connect, cutConnection, probeHost } from "../../../../src/engine/store/postgres/connect.ts";
import { freshDatabase } from "../../../postgres.ts";
import { createRandom } from "../createRandom.ts";
import { ask } from "./postgresDatabase.ts";
import { vanishingHost } from "./vanishingHost.ts";
import { closeAfterTest, makeInput, createSteppedClock, TestClock, StoreFixture } from "../storeFixture.ts";

// The databases of this file stop answering instead of refusing connections.

/**
 * Pauses of at least this long end only while a host is gone, so that a slow machine is never mistaken for a
 * silent host. The deadline of a batch never passes here.
 */
const longPause = 1_000;

type Host = { isGone(): boolean };

async function nodeAt(url: string, ...hosts: readonly Host[]): Promise<StoreFixture> {
  const clock = new TestClock();
  const pace = createSteppedClock(clock);
  const sleep: typeof pace.sleep = async (until, wake) => {
    if (until - clock.now < longPause) return pace.sleep(until, wake);
    const isDeadline = until - clock.now === batchTimeout;
    do await pace.sleep(clock.now + 100, wake);
    while (!wake.aborted && (isDeadline || !hosts.some((host) => host.isGone())));
  };
  const store = await postgresStore({
    url,
    node: "nod_a",
    random: createRandom(1),
    now: () => clock.now,
    clock: { ...pace, sleep },
  });
  return new StoreFixture(closeAfterTest(store), clock, "nod_a");
}

/** Returns a URL with two hosts, in this order. */
const urlOfBoth = (first: string, second: string): string => {
  const { username, host, pathname } = new URL(first);
  return `postgres://${username}@${host},${new URL(second).host}${pathname}`;
};

test(
  "a probe notices a host that vanished silently, and a batch sent to it is refused as not stored",
  { tags: "long" },
  async () => {
    const url = await freshDatabase();
    const host = await vanishingHost(url);
    const world = await nodeAt(host.url, host);
    await world.account();
    host.vanish();
    const before = host.accepted();
    await expect(world.publish([makeInput({ delay: 1 })])).rejects.toMatchObject({
      code: "unavailable",
      message: "storage unavailable: nothing was stored; retry later",
    });
    expect(host.accepted(), "connections of the probe and of the retries").toBeGreaterThan(before);
    host.comeBack();
    expect(await world.send({ delay: 1 })).toMatch(/^msg_/);
    expect(await ask(url, "select 1 from messages")).toHaveLength(1);
  },
);

test("reads from a host that vanished fail as unavailable", { tags: "long" }, async () => {
  const url = await freshDatabase();
  const host = await vanishingHost(url);
  const world = await nodeAt(host.url, host);
  await world.account();
  await world.store.read.accounts();
  host.vanish();
  // More reads than there are connections for reading.
  const reads = await Promise.allSettled(Array.from({ length: 12 }, () => world.store.read.accounts()));
  for (const read of reads)
    expect(read).toMatchObject({ status: "rejected", reason: { name: "Refusal", code: "unavailable" } });
  host.comeBack();
  expect(await world.store.read.accounts()).toHaveLength(1);
});

test("a node switches to the second host if the first one vanishes silently", async () => {
  const url = await freshDatabase();
  const first = await vanishingHost(url);
  const second = await vanishingHost(url);
  // Time stops as soon as the other host is asked.
  const world = await nodeAt(urlOfBoth(first.url, second.url), {
    isGone: () => first.isGone() && second.accepted() === 0,
  });
  await world.account();
  expect(second.accepted()).toBe(0);
  first.vanish();
  expect(await world.send({ delay: 1 })).toMatch(/^msg_/);
  expect(second.accepted()).toBeGreaterThan(0);
});

test("an unanswered commit is not repeated, and the next connection starts with the next host", async () => {
  const url = await freshDatabase();
  const first = await vanishingHost(url);
  const second = await vanishingHost(url);
  // Time stops as soon as the other host is asked.
  const world = await nodeAt(urlOfBoth(first.url, second.url), {
    isGone: () => first.isGone() && second.accepted() === 0,
  });
  await world.account();
  let isCommitted = false;
  // The commit arrives, and from then on the host sends nothing more.
  first.vanish((data) => {
    const wasCommitted = isCommitted;
    isCommitted ||= data.includes("commit\0");
    return wasCommitted;
  });
  await expect(world.publish([makeInput({ delay: 1 })])).rejects.toMatchObject({
    code: "outcome-unknown",
    message: expect.stringContaining("the request may or may not have been stored; check before you retry"),
  });
  expect(await ask(url, "select 1 from messages"), "the message was stored once").toHaveLength(1);
  expect(await world.send({ delay: 1 })).toMatch(/^msg_/);
  expect(second.accepted()).toBeGreaterThan(0);
});

test("a batch that meets a full disk is not tried again", async () => {
  const url = await freshDatabase();
  const world = await nodeAt(url);
  await world.account();
  await ask(url, "create sequence tries");
  await ask(
    url,
    `create function fill_disk() returns trigger language plpgsql as $$ begin
      perform nextval('tries');
      raise exception 'could not extend file' using errcode = '53100';
    end $$`,
  );
  await ask(
    url,
    "create trigger full_disk before insert on stored_messages for each row execute function fill_disk()",
  );
  await expect(world.send({ delay: 1 })).rejects.toMatchObject({ code: "unavailable" });
  expect(await ask(url, "select last_value::int as tries from tries")).toEqual([{ tries: 1 }]);
});

test("a storage probe waits for the standby, like a batch", { tags: "long" }, async () => {
  const url = await freshDatabase();
  const host = await vanishingHost(url);
  const world = await nodeAt(host.url, host);
  await world.account();
  await ask(url, "create sequence probes");
  await ask(
    url,
    "create function note_probe() returns trigger language plpgsql " +
      "as $$ begin perform nextval('probes'); return new; end $$",
  );
  await ask(
    url,
    "create trigger probed before update on storage_probe for each row execute function note_probe()",
  );
  host.vanish((data) => data.includes("commit\0"));
  // The database ends a transaction whose commit does not arrive. The node tries again until its deadline.
  // The time of the deadline decides whether a commit is on its way then.
  await expect(world.send({ delay: 1 })).rejects.toMatchObject({
    code: expect.stringMatching(/^(outcome-unknown|unavailable)$/),
  });
  host.comeBack();
  expect(await world.store.takesChanges()).toBe(true);
  expect(await ask(url, "select last_value::int as probes, is_called from probes")).toEqual([
    { probes: 1, is_called: true },
  ]);
});

test(
  "a transaction that the database ended because its commit did not arrive runs again",
  { tags: "long" },
  async () => {
    const url = await freshDatabase();
    const host = await vanishingHost(url);
    // The host is not gone, so no probe may time out before the database ends the transaction.
    const world = await nodeAt(host.url);
    await world.account();
    let commits = 0;
    host.vanish((data) => data.includes("commit\0") && ++commits === 1);
    expect(await world.publish([makeInput({ delay: 1 })])).toMatchObject([{ deduplicated: false }]);
    expect(commits).toBeGreaterThan(1);
    expect(await ask(url, "select 1 from messages")).toHaveLength(1);
  },
);

test("a host that refuses a probe has answered it", async () => {
  const url = await freshDatabase();
  const client = await connect({ url }, { kind: "look" });
  await expect(probeHost(client, { url: `${url}_missing` })).resolves.toBeUndefined();
  const nobody = new URL(url);
  nobody.port = "1";
  await expect(probeHost(client, { url: nobody.href })).rejects.toMatchObject({ code: "ECONNREFUSED" });
  cutConnection(client);
});
