import { fc } from "../../../seeds.ts";
import { expect, test } from "vitest";
import { toTagId, toTag, tagPrefix, makeTags, makeTagIds } from "../../../../src/engine/core/search/tags.ts";
import { CommandRunner, makeInput, noon } from "../commandRunner.ts";
import { makeDeletion } from "../../../makeDeletion.ts";

test("no tag is the beginning of another tag, and each is one word", () => {
  const text = fc.oneof(fc.string({ minLength: 1 }), fc.stringMatching(/^[ab %\n\0]{1,6}$/));
  fc.assert(
    fc.property(text, text, fc.string(), (a, b, id) => {
      expect(toTag.label(a)).toMatch(/^[^\s\0]+$/);
      if (a !== b)
        expect(toTagId("log", toTag.label(b), id).startsWith(tagPrefix("log", toTag.label(a)))).toBe(false);
    }),
  );
});

test("URLs of any length have short tags, and different URLs have different tags", () => {
  const urls = Array.from({ length: 10_000 }, (_, n) => `https://shop.example/${"x".repeat(n % 200)}/${n}`);
  const marks = new Set(urls.map(toTag.url));
  expect(marks.size).toBe(urls.length);
  expect([...marks].every((mark) => mark.length < 20)).toBe(true);
});

test("a plain message has no tags, unless it fails", async () => {
  expect(makeTags(makeInput())).toEqual([]);
  const broker = await CommandRunner.open();
  const id = await broker.publish();
  await broker.settle(id, { status: 200 });
  await broker.publish({ delay: 5 });
  expect([...broker.memory.tables.tags.keys()]).toEqual([]);
});

test("a message has one tag for each label, and for its queue, key, schedule and group", () => {
  const flowControl = { key: "k", parallelism: 1, rate: null, period: null };
  const input = makeInput({
    labels: ["a b", "c", "c"],
    queue: "q",
    flowControl,
    scheduleId: "scd_1",
    group: "g",
  });
  expect(makeTags(input)).toEqual([
    "label:a%20.b",
    "label:c",
    "queue:q",
    "key:k",
    "schedule:scd_1",
    "group:g",
  ]);
});

test("tags are added and removed with their rows", async () => {
  const broker = await CommandRunner.open();
  const marks = (): string[] => [...broker.memory.tables.tags.values()].map(({ id }) => id).sort();
  const id = await broker.publish({ labels: ["l"], retries: 0 });
  expect(marks()).toEqual([`born label:l ${id}`, `unfinished label:l ${id}`]);
  await broker.settle(id, { status: 500 });
  const [deadLetter] = broker.deadLetters;
  const [row] = broker.logRows(id);
  const ofLetter = deadLetter ? (makeTagIds.deadLetters?.(deadLetter) ?? []) : [];
  expect(ofLetter).toHaveLength(5);
  expect(marks()).toEqual(
    [
      `born label:l ${id}`,
      ...["label:l", "state:ERROR", "state:FAILED"].map((mark) => `log ${mark} ${row?.id}`),
      ...ofLetter,
    ].sort(),
  );
  await broker.run(
    "bulk",
    makeDeletion({ account: "acme", dlqIds: [deadLetter?.id ?? ""], logRetention: 1_000 }),
  );
  expect(marks().every((mark) => /^(born|log) /.test(mark))).toBe(true);
  broker.now = noon + 2_000;
  await broker.run("expire", {
    account: "acme",
    retention: { log: 1_000, deadLetters: 1_000 },
    now: broker.now,
    limit: 10,
  });
  expect(marks()).toEqual([]);
});

test("a refused command adds no tags", async () => {
  const broker = await CommandRunner.open();
  const id = await broker.publish({ labels: ["l"], retries: 0 });
  await broker.settle(id);
  const before = [...broker.memory.tables.tags.keys()];
  const dlqIds = broker.deadLetters.map((deadLetter) => deadLetter.id);
  const overrides = { retries: 5_000 };
  await expect(
    broker.run("retryDeadLetters", { account: "acme", dlqIds, logRetention: 1, overrides }),
  ).rejects.toThrow("limit-exceeded");
  expect([...broker.memory.tables.tags.keys()]).toEqual(before);
});
