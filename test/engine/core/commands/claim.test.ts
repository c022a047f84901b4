import { beforeEach, describe, expect, test } from "vitest";
import { CommandRunner, callbackTo, noCapacity, noon } from "../commandRunner.ts";

const second = 1000;
const lease = 30 * second;
const { capacity: plenty } = new CommandRunner();

let broker: CommandRunner;
beforeEach(async () => {
  broker = await CommandRunner.open();
});

const claim = (limit = 10) => broker.run("claim", { limit });
const idsOf = () => broker.deliveries.map(({ message }) => message.id);

describe("a claim", () => {
  test("leases due messages, oldest first, and no others", async () => {
    const early = await broker.publish({ delay: 2 * second });
    const late = await broker.publish({ delay: 3 * second });
    const later = await broker.publish({ delay: 3 * second + 1 });
    broker.now += 3 * second;
    expect(await claim()).toEqual({ more: false, now: noon + 3 * second, turns: {}, backlogged: [] });
    expect(idsOf()).toEqual([early, late]);
    expect(broker.state(early)).toMatchObject({
      state: "active",
      leasedBy: "nod_a",
      dueAt: broker.now + lease,
      attempts: 0,
    });
    expect(broker.log(early)).toBe("ACTIVE");
    expect(broker.state(later)).toMatchObject({ state: "pending" });
  });

  test("looks at no more rows than its limit, and reports that there may be more", async () => {
    broker.capacity = noCapacity;
    const ids = [await broker.publish(), await broker.publish(), await broker.publish()];
    broker.capacity = plenty;
    expect(await claim(2)).toMatchObject({ more: true });
    expect(idsOf()).toEqual(ids.slice(0, 2));
    expect(await claim(2)).toMatchObject({ more: false });
    expect(idsOf()).toEqual(ids.slice(2));
  });

  test("signs with the current signing key", async () => {
    await broker.publish({ delay: second });
    const keys = await broker.run("rotateKeys", { account: "acme" });
    expect(keys).toMatchObject({ current: "sig_2" });
    broker.now += second;
    await claim();
    expect(broker.deliveries).toMatchObject([{ signingKey: "sig_2" }]);
  });
});

describe("an expired lease", () => {
  test("is an attempt without a report: the message is sent again, and no retry is used up", async () => {
    const id = await broker.publish({ retries: 0 });
    broker.now += lease;
    broker.node = "nod_b";
    await claim();
    expect(broker.deliveries).toMatchObject([{ message: { id }, attempt: 1 }]);
    expect(broker.state(id)).toMatchObject({ attempts: 1, lostAttempts: 1, leasedBy: "nod_b" });
    expect(broker.log(id)).toBe("ERROR RETRY ACTIVE");
    expect(broker.logRows(id)[0]?.error).toBe("no report: the lease of node nod_a ran out");
  });

  test("is not yet expired one millisecond before its end", async () => {
    await broker.publish();
    broker.now += lease - 1;
    await claim();
    expect(broker.deliveries).toEqual([]);
  });

  test("fails its message at the sixth time: dead letter, callbacks, free deduplication id", async () => {
    const id = await broker.publish({
      deduplication: "key",
      failureCallback: callbackTo("https://told.example"),
    });
    for (let lost = 1; lost <= 5; lost++) {
      broker.now += lease;
      await claim();
      expect(broker.state(id)).toMatchObject({ attempts: lost, lostAttempts: lost });
    }
    broker.now += lease;
    await claim();
    expect(broker.state(id)).toBeUndefined();
    expect(broker.deadLetters).toMatchObject([
      { messageId: id, status: null, retried: 0, error: "no report: the lease of node nod_a ran out" },
    ]);
    expect(broker.listReporters(id)).toHaveLength(1);
    expect(broker.memory.tables.deduplications.size).toBe(0);
  });

  test("of a failure callback is recorded in its dead letter at the sixth time", async () => {
    const failed = await broker.publish({ retries: 0, failureCallback: callbackTo("https://told.example") });
    await broker.settle(failed);
    for (let lost = 0; lost < 6; lost++) {
      broker.now += lease;
      await claim();
    }
    expect(broker.deadLetters.find(({ messageId }) => messageId === failed)?.failureCallback).toMatchObject({
      state: "CALLBACK_FAIL",
    });
  });
});

describe("the waitlist of a host", () => {
  const one: typeof plenty = { ...plenty, free: 1 };

  test("holds due messages without capacity, so that later claims do not load them", async () => {
    broker.capacity = noCapacity;
    const ids = [await broker.publish(), await broker.publish()];
    await claim();
    for (const id of ids) expect(broker.state(id)).toMatchObject({ state: "held", dueAt: null });
    expect([...broker.memory.tables.hostWaitlists.values()]).toEqual([
      { account: "acme", host: "shop.example", dueAt: noon + second },
    ]);
  });

  test("is served in order of acceptance, and is removed with its last message", async () => {
    broker.capacity = noCapacity;
    const ids = [await broker.publish(), await broker.publish()];
    await claim();
    broker.now += second;
    broker.capacity = one;
    await claim();
    expect(idsOf()).toEqual(ids.slice(0, 1));
    expect(broker.memory.tables.hostWaitlists.size).toBe(1);
    broker.now += second;
    await claim();
    expect(idsOf()).toEqual(ids.slice(1));
    expect(broker.memory.tables.hostWaitlists.size).toBe(0);
  });

  test("is served when a delivery to its host has ended", async () => {
    const sent = await broker.publish();
    broker.capacity = noCapacity;
    const waiting = await broker.publish();
    await claim();
    broker.capacity = one;
    await broker.settle(sent, { status: 200 });
    expect(idsOf()).toEqual([waiting]);
  });

  test("is served by the next claim if capacity is short, after hosts that have waited longer", async () => {
    const sent = await broker.publish();
    broker.capacity = noCapacity;
    const waiting = await broker.publish();
    await claim();
    broker.now += 1;
    const other = await broker.publish({ url: "https://other.example" });
    await claim();
    broker.now += second;
    broker.capacity = { ...one, backlog: true };
    await broker.settle(sent, { status: 200 });
    expect(broker.deliveries).toEqual([]);
    await claim(1);
    expect(idsOf()).toEqual([waiting]);
    await claim(1);
    expect(idsOf()).toEqual([other]);
  });

  test("of a host that has just freed capacity is served after those that were due before", async () => {
    const sent = await broker.publish();
    broker.capacity = noCapacity;
    const other = await broker.publish({ url: "https://other.example" });
    await claim();
    broker.now += second / 2;
    const waiting = await broker.publish();
    await claim();
    broker.now += second / 2;
    broker.capacity = { ...one, backlog: true };
    await broker.settle(sent, { status: 200 });
    await claim(1);
    expect(idsOf()).toEqual([other]);
    await claim();
    expect(idsOf()).toEqual([waiting]);
  });

  test("is removed when it is served after its last message was cancelled", async () => {
    broker.capacity = noCapacity;
    const id = await broker.publish();
    await claim();
    await broker.run("cancel", { account: "acme", messageIds: [id] });
    broker.now += second;
    await claim();
    expect(broker.memory.tables.hostWaitlists.size).toBe(0);
  });

  test("holds messages that come later, even if there is capacity by then", async () => {
    broker.capacity = noCapacity;
    await broker.publish();
    await claim();
    broker.capacity = plenty;
    const later = await broker.publish();
    expect(broker.deliveries).toEqual([]);
    expect(broker.state(later)).toMatchObject({ state: "pending" });
  });

  test("stays if it has more messages than were looked at", async () => {
    const sent = await broker.publish();
    broker.capacity = noCapacity;
    for (let count = 0; count < 10; count++) await broker.publish();
    await claim(100);
    broker.capacity = plenty;
    await broker.settle(sent, { status: 200 });
    expect(broker.deliveries).toHaveLength(2);
    expect([...broker.memory.tables.hostWaitlists.values()]).toMatchObject([{ dueAt: broker.now }]);
    await claim(100);
    expect(broker.deliveries).toHaveLength(8);
    expect(broker.memory.tables.hostWaitlists.size).toBe(0);
  });
});

describe("a message without its stored message", () => {
  test("fails with a fault in the log, and does not stop other messages", async () => {
    const broken = await broker.publish({ delay: second });
    const whole = await broker.publish({ delay: second });
    broker.memory.tables.storedMessages.delete(`acme\n${broken}`);
    broker.now += second;
    expect(await claim()).toMatchObject({ more: false });
    expect(idsOf()).toEqual([whole]);
    expect(broker.state(broken)).toBeUndefined();
    expect(broker.deadLetters).toMatchObject([
      { messageId: broken, error: expect.stringContaining("damaged") },
    ]);
    expect(broker.faults).toEqual([expect.stringContaining(broken)]);
  });

  test("fails in a waitlist as well", async () => {
    const sent = await broker.publish();
    broker.capacity = noCapacity;
    const broken = await broker.publish();
    const whole = await broker.publish();
    await claim();
    broker.memory.tables.storedMessages.delete(`acme\n${broken}`);
    broker.capacity = plenty;
    await broker.settle(sent, { status: 200 });
    const begun = idsOf();
    await claim();
    expect([...begun, ...idsOf()]).toEqual([whole]);
    expect(broker.state(broken)).toBeUndefined();
    expect(broker.faults).toEqual([expect.stringContaining(broken)]);
  });

  test("fails after a failed attempt, and when its last lease expires", async () => {
    const failing = await broker.publish();
    const lost = await broker.publish();
    for (const id of [failing, lost]) broker.memory.tables.storedMessages.delete(`acme\n${id}`);
    expect(await broker.settle(failing, { status: 500 })).toBe("retry");
    await claim();
    expect(broker.faults).toEqual([expect.stringContaining(failing)]);
    broker.now += lease;
    await claim();
    expect(broker.faults).toEqual([expect.stringContaining(lost)]);
    expect(broker.memory.tables.messages.size).toBe(0);
  });
});

describe("a reclaim after a restart", () => {
  test("makes the leases of other processes due now, and counts them as lost attempts", async () => {
    const id = await broker.publish();
    broker.node = "nod_b";
    expect(await broker.run("reclaim", { node: "nod_b", limit: 10 })).toEqual({ reclaimed: 1 });
    await claim();
    expect(broker.deliveries).toMatchObject([{ message: { id }, attempt: 1 }]);
    expect(broker.state(id)).toMatchObject({ attempts: 1, lostAttempts: 1 });
    expect(broker.logRows(id)[0]?.error).toBe(
      "no report: the server was restarted while node nod_a was sending it",
    );
  });

  test("changes nothing at a second restart, so the log names the node that sent the message", async () => {
    const id = await broker.publish();
    broker.node = "nod_b";
    expect(await broker.run("reclaim", { node: "nod_b", limit: 10 })).toEqual({ reclaimed: 1 });
    broker.node = "nod_c";
    expect(await broker.run("reclaim", { node: "nod_c", limit: 10 })).toEqual({ reclaimed: 0 });
    await claim();
    expect(broker.logRows(id)[0]?.error).toBe(
      "no report: the server was restarted while node nod_a was sending it",
    );
  });
});
