import { beforeEach, describe, expect, test } from "vitest";
import { noBytes } from "../../../../src/engine/core/values/basics.ts";
import type { Run, Step } from "../../../../src/engine/core/model/run.ts";
import { CommandRunner, noon } from "../commandRunner.ts";
import { makeDeletion } from "../../../makeDeletion.ts";

const hour = 3_600_000;
const minute = 60_000;

let broker: CommandRunner;
beforeEach(async () => {
  broker = await CommandRunner.open();
});

const expire = ({ log = 2 * hour, deadLetters = 2 * hour, now = broker.now, limit = 100 } = {}) =>
  broker.run("expire", { account: "acme", retention: { log, deadLetters }, now, limit });
const sizes = () => {
  const { storedMessages, log, keptLog, deadLetters, deduplications, messages } = broker.memory.tables;
  return {
    envelopes: storedMessages.size,
    log: log.size,
    keptLog: keptLog.size,
    deadLetters: deadLetters.size,
    deduplications: deduplications.size,
    messages: messages.size,
  };
};
const remove = (how: "deletion" | "retry", dlqIds: string[], logRetention: number) =>
  how === "deletion"
    ? broker.run("bulk", makeDeletion({ account: "acme", dlqIds, logRetention }))
    : broker.run("retryDeadLetters", { account: "acme", dlqIds, logRetention, overrides: {} });
const nothing = { envelopes: 0, log: 0, keptLog: 0, deadLetters: 0, deduplications: 0, messages: 0 };
const deliver = async () => broker.settle(await broker.publish(), { status: 200 });
const fail = async () => broker.settle(await broker.publish({ retries: 0 }));

test("a log row and its stored message are removed when the log retention has passed", async () => {
  await deliver();
  broker.now = noon + 2 * hour;
  expect(await expire()).toEqual({ removed: 0, more: false });
  broker.now += 1;
  expect(await expire()).toEqual({ removed: 1, more: false });
  expect(sizes()).toEqual(nothing);
});

test("an unfinished message keeps its whole log until the entry that ended it has expired", async () => {
  const id = await broker.publish({ retryDelay: "86400000" });
  await broker.settle(id);
  broker.now += 3 * hour;
  expect(await expire()).toEqual({ removed: 0, more: false });
  expect(sizes()).toEqual({ ...nothing, envelopes: 1, messages: 1, keptLog: 1 });
  broker.now = noon + 24 * hour;
  await broker.run("claim", { limit: 10 });
  await broker.settle(id, { status: 200 });
  broker.now += 2 * hour;
  await expire();
  expect(sizes()).toEqual({ ...nothing, envelopes: 1, keptLog: 1, log: 2 });
  broker.now += 1;
  await expire({ limit: 1 });
  expect(sizes(), "the log goes at once, not entry by entry").toEqual({
    ...nothing,
    envelopes: 1,
    keptLog: 2,
    log: 1,
  });
  await expire({ limit: 1 });
  expect(sizes()).toEqual(nothing);
});

describe("the log of a dead letter", () => {
  test("stays with a dead letter that is kept longer than the log, and goes with it", async () => {
    await fail();
    broker.now = noon + hour + 1;
    expect(await expire({ log: hour })).toEqual({ removed: 0, more: false });
    expect(sizes()).toEqual({ ...nothing, envelopes: 1, deadLetters: 1, keptLog: 1 });
    broker.now = noon + 2 * hour + 1;
    await expire({ log: hour });
    expect(sizes()).toEqual(nothing);
  });

  test.each(["deletion", "retry"] as const)(
    "is removed by a %s if its own retention has passed",
    async (how) => {
      await fail();
      const dlqIds = broker.deadLetters.map(({ id }) => id);
      broker.now = noon + hour + 1;
      await expire({ log: hour });
      await remove(how, dlqIds, hour);
      const again = how === "retry" ? 1 : 0;
      expect(sizes()).toEqual({ ...nothing, envelopes: again, messages: again });
    },
  );

  test.each(["deletion", "retry"] as const)(
    "stays for its own retention after a %s, and is then removed",
    async (how) => {
      const id = await broker.publish({ retries: 1, retryDelay: String(hour) });
      await broker.settle(id);
      broker.now = noon + hour;
      await broker.run("claim", { limit: 10 });
      await broker.settle(id);
      const dlqIds = broker.deadLetters.map(({ id }) => id);
      broker.now = noon + 2 * hour;
      await expire({ log: 90 * minute });
      expect(sizes()).toEqual({ ...nothing, envelopes: 1, deadLetters: 1, keptLog: 1, log: 2 });
      await remove(how, dlqIds, 90 * minute);
      const again = how === "retry" ? 1 : 0;
      const rest = { ...nothing, envelopes: again, messages: again };
      expect(sizes()).toEqual({ ...rest, envelopes: 1 + again, keptLog: 1, log: 2 });
      broker.now = noon + 3 * hour;
      expect(await expire({ log: 90 * minute })).toEqual({ removed: 3, more: false });
      expect(sizes()).toEqual(rest);
    },
  );

  test("is removed if the dead letter was removed in the batch in which it expired", async () => {
    await fail();
    const dlqIds = broker.deadLetters.map(({ id }) => id);
    broker.now = noon + hour + 1;
    const retention = { log: hour, deadLetters: 2 * hour };
    await broker.runAll([
      { name: "expire", input: { account: "acme", retention, now: broker.now, limit: 10 } },
      { name: "bulk", input: makeDeletion({ account: "acme", dlqIds, logRetention: hour }) },
    ]);
    expect(sizes()).toEqual(nothing);
  });

  test("keeps its tags, and is removed with them", async () => {
    await broker.settle(await broker.publish({ retries: 0, labels: ["eu"] }));
    const marks = [...broker.memory.tables.tags.keys()];
    broker.now = noon + hour + 1;
    await expire({ log: hour });
    expect([...broker.memory.tables.tags.keys()]).toEqual(marks);
    broker.now = noon + 2 * hour + 1;
    await expire({ log: hour });
    expect(broker.memory.tables.tags.size).toBe(0);
  });

  test("stays for its own retention if that is longer than that of the dead letter", async () => {
    await fail();
    broker.now = noon + hour + 1;
    await expire({ deadLetters: hour });
    expect(sizes()).toEqual({ ...nothing, envelopes: 1, log: 1 });
    broker.now = noon + 2 * hour + 1;
    await expire({ deadLetters: hour });
    expect(sizes()).toEqual(nothing);
  });

  test("is removed with the dead letter when both have expired", async () => {
    await fail();
    broker.now = noon + 2 * hour + 1;
    expect(await expire()).toEqual({ removed: 2, more: false });
    expect(sizes()).toEqual(nothing);
  });
});

test("a deduplication key is removed when its window has passed", async () => {
  await broker.publish({ deduplication: "key", delay: hour });
  broker.now = noon + 10 * minute;
  expect(await expire()).toMatchObject({ removed: 0 });
  broker.now += 1;
  expect(await expire()).toMatchObject({ removed: 1 });
});

test("at most the limit is removed at once, oldest first", async () => {
  for (let count = 0; count < 3; count++) await deliver();
  const [oldest] = [...broker.memory.tables.log.keys()].sort();
  broker.now += 3 * hour;
  expect(await expire({ limit: 1 })).toEqual({ removed: 1, more: true });
  expect([...broker.memory.tables.log.keys()]).not.toContain(oldest);
  expect(await expire({ limit: 5 })).toEqual({ removed: 2, more: false });
});

describe("a node whose clock is wrong", () => {
  test("removes nothing too early if its clock is ahead", async () => {
    await fail();
    await broker.publish({ deduplication: "key" });
    const before = sizes();
    expect(await expire({ now: broker.now + 100 * hour })).toEqual({ removed: 0, more: false });
    expect(sizes()).toEqual(before);
  });

  test("keeps runs with all of their steps if it is ahead, and its limit still applies", async () => {
    const { runs, steps } = broker.memory.tables;
    const keep = (id: string, state: Run["state"], endedAt: number): void => {
      const told = {
        url: "https://e.example",
        labels: [],
        callerIp: null,
        settings: { flowControl: null },
        body: noBytes,
      } as unknown as Run;
      runs.set(`acme\n${id}`, { ...told, account: "acme", id, runId: id, state, endedAt });
      for (const slot of ["r0", "r1"])
        steps.set(`acme\n${id}/${slot}`, {
          account: "acme",
          id: `${id}/${slot}`,
          run: id,
          body: noBytes,
        } as Step);
    };
    keep("wfr_failed", "RUN_FAILED", noon);
    broker.now = noon + 3 * hour;
    keep("wfr_fresh", "RUN_SUCCESS", broker.now);
    await expire({ now: broker.now + 100 * hour, limit: 2 });
    expect([[...runs.values()].map(({ id }) => id), steps.size]).toEqual([["wfr_failed", "wfr_fresh"], 4]);
    // As soon as the clock is right, the removal continues.
    while ((await expire({ limit: 2 })).more);
    expect([[...runs.values()].map(({ id }) => id), steps.size]).toEqual([["wfr_fresh"], 2]);
  });

  test("removes rows later if its clock is behind", async () => {
    await deliver();
    broker.now = noon + 3 * hour;
    expect(await expire({ now: noon + hour })).toEqual({ removed: 0, more: false });
  });
});
