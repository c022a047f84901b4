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
  test("takes what is due, oldest first, and nothing that is not", async () => {
    const early = await broker.publish({ delay: 2 * second });
    const late = await broker.publish({ delay: 3 * second });
    const later = await broker.publish({ delay: 3 * second + 1 });
    broker.now += 3 * second;
    expect(await claim()).toEqual({ more: false, now: noon + 3 * second, turns: {}, backlogged: [] });
    expect(idsOf()).toEqual([early, late]);
    expect(broker.state(early)).toMatchObject({ state: "active", leasedBy: "nod_a", dueAt: broker.now + lease, attempts: 0 });
    expect(broker.log(early)).toBe("ACTIVE");
    expect(broker.state(later)).toMatchObject({ state: "pending" });
  });

  test("looks at no more than it was told to, and says that there may be more", async () => {
    broker.capacity = noCapacity;
    const ids = [await broker.publish(), await broker.publish(), await broker.publish()];
    broker.capacity = plenty;
    expect(await claim(2)).toMatchObject({ more: true });
    expect(idsOf()).toEqual(ids.slice(0, 2));
    expect(await claim(2)).toMatchObject({ more: false });
    expect(idsOf()).toEqual(ids.slice(2));
  });

  test("signs with the key that holds now", async () => {
    await broker.publish({ delay: second });
    const keys = await broker.run("rotateKeys", { account: "acme" });
    expect(keys).toMatchObject({ current: "sig_2" });
    broker.now += second;
    await claim();
    expect(broker.deliveries).toMatchObject([{ signingKey: "sig_2" }]);
  });
});

describe("a lease that ran out", () => {
  test("is an attempt without a report: sent again at once, and no retry is used up", async () => {
    const id = await broker.publish({ retries: 0 });
    broker.now += lease;
    broker.node = "nod_b";
    await claim();
    expect(broker.deliveries).toMatchObject([{ message: { id }, attempt: 1 }]);
    expect(broker.state(id)).toMatchObject({ attempts: 1, lostAttempts: 1, leasedBy: "nod_b" });
    expect(broker.log(id)).toBe("ERROR RETRY ACTIVE");
    expect(broker.logRows(id)[0]?.error).toBe("no report: the lease of node nod_a ran out");
  });

  test("a millisecond before, it has not", async () => {
    await broker.publish();
    broker.now += lease - 1;
    await claim();
    expect(broker.deliveries).toEqual([]);
  });

  test("for the sixth time, it is the end: the dead letter, its callbacks, and the deduplication id is free again", async () => {
    const id = await broker.publish({ deduplication: "key", failureCallback: callbackTo("https://told.example") });
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

  test("of a failure callback, for the sixth time: the dead letter it told of knows", async () => {
    const failed = await broker.publish({ retries: 0, failureCallback: callbackTo("https://told.example") });
    await broker.settle(failed);
    for (let lost = 0; lost < 6; lost++) {
      broker.now += lease;
      await claim();
    }
    expect(broker.deadLetters.find(({ messageId }) => messageId === failed)?.failureCallback).toMatchObject({ state: "CALLBACK_FAIL" });
  });
});

describe("a line", () => {
  const one: typeof plenty = { ...plenty, free: 1 };

  test("is where due messages wait that find no hand, out of sight of further claims", async () => {
    broker.capacity = noCapacity;
    const ids = [await broker.publish(), await broker.publish()];
    await claim();
    for (const id of ids) expect(broker.state(id)).toMatchObject({ state: "held", dueAt: null });
    expect([...broker.memory.tables.hostWaitlists.values()]).toEqual([{ account: "acme", host: "shop.example", dueAt: noon + second }]);
  });

  test("is served in order of arrival, and ends with its last message", async () => {
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

  test("is served when a delivery of its host has ended", async () => {
    const sent = await broker.publish();
    broker.capacity = noCapacity;
    const waiting = await broker.publish();
    await claim();
    broker.capacity = one;
    await broker.settle(sent, { status: 200 });
    expect(idsOf()).toEqual([waiting]);
  });

  test("is left to the next claim when hands are short, and that serves the host that has waited longest", async () => {
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

  test("of a host that has just given back a hand comes after those of others that were due before", async () => {
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

  test("whose last message was cancelled ends when it is looked at", async () => {
    broker.capacity = noCapacity;
    const id = await broker.publish();
    await claim();
    await broker.run("cancel", { account: "acme", messageIds: [id] });
    broker.now += second;
    await claim();
    expect(broker.memory.tables.hostWaitlists.size).toBe(0);
  });

  test("has those behind it who come later, even if a hand is free by then", async () => {
    broker.capacity = noCapacity;
    await broker.publish();
    await claim();
    broker.capacity = plenty;
    const later = await broker.publish();
    expect(broker.deliveries).toEqual([]);
    expect(broker.state(later)).toMatchObject({ state: "pending" });
  });

  test("is not forgotten when there is more of it than was looked at", async () => {
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

describe("a message that has lost its envelope", () => {
  test("fails, which people are told, and does not stop the others", async () => {
    const broken = await broker.publish({ delay: second });
    const whole = await broker.publish({ delay: second });
    broker.memory.tables.storedMessages.delete(`acme\n${broken}`);
    broker.now += second;
    expect(await claim()).toMatchObject({ more: false });
    expect(idsOf()).toEqual([whole]);
    expect(broker.state(broken)).toBeUndefined();
    expect(broker.deadLetters).toMatchObject([{ messageId: broken, error: expect.stringContaining("damaged") }]);
    expect(broker.faults).toEqual([expect.stringContaining(broken)]);
  });

  test("so it is in a line", async () => {
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

  test("so it is when its attempt failed, and when its last lease ran out", async () => {
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

describe("after a restart", () => {
  test("what others had leased is due now, and counts as lost", async () => {
    const id = await broker.publish();
    broker.node = "nod_b";
    expect(await broker.run("reclaim", { node: "nod_b", limit: 10 })).toEqual({ reclaimed: 1 });
    await claim();
    expect(broker.deliveries).toMatchObject([{ message: { id }, attempt: 1 }]);
    expect(broker.state(id)).toMatchObject({ attempts: 1, lostAttempts: 1 });
    expect(broker.logRows(id)[0]?.error).toBe("no report: the server was restarted while node nod_a was sending it");
  });

  test("before it is claimed, another restart changes nothing: the first node was the one that sent it", async () => {
    const id = await broker.publish();
    broker.node = "nod_b";
    expect(await broker.run("reclaim", { node: "nod_b", limit: 10 })).toEqual({ reclaimed: 1 });
    broker.node = "nod_c";
    expect(await broker.run("reclaim", { node: "nod_c", limit: 10 })).toEqual({ reclaimed: 0 });
    await claim();
    expect(broker.logRows(id)[0]?.error).toBe("no report: the server was restarted while node nod_a was sending it");
  });
});
