import { mkdirSync, readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { DatabaseSync } from "node:sqlite";
import { onTestFinished } from "vitest";
import { describe, expect, test } from "vitest";
import { deadLetterFields } from "../../../../src/api/fields/deadLetter.ts";
import { toJson } from "../../../../src/api/fields/field.ts";
import type { Damage } from "../../../../src/engine/store/sqlite/fileCheck.ts";
import { makeKeyLine, readKeyRing, withChecksum } from "../../../../src/engine/store/layout/keyRing.ts";
import { openSqliteForMove } from "../../../../src/operations/moveStore/sqlite.ts";
import { sqliteStore } from "../../../../src/engine/store/sqlite/sqliteStore.ts";
import { makeRunStart, makeRunStep } from "../contract/runs.ts";
import {
  bytes,
  makeOldestFirstQuery,
  createTestFolder,
  makeInput,
  createSource,
  TestClock,
  StoreFixture,
} from "../storeFixture.ts";
import { makeDeletion } from "../../../makeDeletion.ts";

const minute = 60_000;

/**
 * Opens a store. Returns the damage that it finds, and a way to change its file without its knowledge, like a
 * damaged disk.
 */
async function opened(path = join(createTestFolder(), "store.db")) {
  const clock = new TestClock();
  const found: Damage[] = [];
  const store = await sqliteStore(path, createSource(clock, "nod_a"), {
    onDamage: (damage) => found.push(damage),
  });
  onTestFinished(() => store.close());
  const world = new StoreFixture(store, clock, "nod_a");
  const alter = (sql: string): void => {
    const database = new DatabaseSync(path);
    database.exec(sql);
    database.close();
  };
  return { path, world, found, alter };
}

const texts = (found: readonly Damage[]): string => found.map(({ text }) => text).join("\n");

describe("an altered row", () => {
  test("of a message makes it a dead letter without content; other messages arrive", async () => {
    const { world, found, alter } = await opened();
    await world.account();
    const altered = await world.send({ delay: minute });
    const whole = await world.send({ delay: minute });
    alter(`update stored_messages set body = cast('hallo' as blob) where id = '${altered}'`);
    world.clock.now += minute;
    expect((await world.claim()).map(({ message }) => message.id)).toEqual([whole]);
    const { entries } = await world.store.read.deadLetters(makeOldestFirstQuery());
    expect(entries).toMatchObject([
      {
        deadLetter: { messageId: altered, error: expect.stringContaining("damaged") },
        message: { damaged: true },
      },
    ]);
    expect(entries[0]?.message.body).toHaveLength(0);
    expect(texts(found)).toContain(`stored_messages acc ${altered} is damaged`);
    const retry = {
      account: "acc",
      dlqIds: entries.map(({ deadLetter }) => deadLetter.id),
      logRetention: minute,
      overrides: {},
    };
    await expect(world.store.execute("retryDeadLetters", retry)).rejects.toThrow("is damaged in the store");
  });

  test("of a queued message makes it a dead letter too, and frees its queue", async () => {
    const { world, alter } = await opened();
    await world.account();
    const first = await world.sent({ queue: "q" });
    const altered = await world.send({ queue: "q" });
    const whole = await world.send({ queue: "q" });
    alter(
      "update stored_messages set detail = replace(detail, 'one.example', 'two.example') " +
        `where id = '${altered}'`,
    );
    await world.settle(first);
    const sent: string[] = [];
    for (let n = 0; n < 4; n++)
      sent.push(
        ...(await world.claim()).map(({ message }) => message.id),
        ...world.delivered().map(({ message }) => message.id),
      );
    expect(sent).toEqual([whole]);
    expect((await world.states(altered)).at(-1)).toBe("FAILED");
  });

  test("of a dead letter is listed without content, is not retried, and can be deleted", async () => {
    const { world, alter } = await opened();
    await world.account();
    const altered = await world.publishFailing({ body: bytes("a") });
    const whole = await world.publishFailing({ body: bytes("b") });
    alter(`update dead_letters set detail = replace(detail, '500', '503') where id = '${altered.dlqId}'`);
    const { entries } = await world.store.read.deadLetters(makeOldestFirstQuery());
    expect(entries.map(({ deadLetter }) => [deadLetter.id, deadLetter.damaged])).toEqual([
      [altered.dlqId, true],
      [whole.dlqId, undefined],
    ]);
    const of = { account: "acc", dlqIds: [altered.dlqId], logRetention: minute };
    await expect(world.store.execute("retryDeadLetters", { ...of, overrides: {} })).rejects.toThrow(
      `${altered.dlqId} is damaged`,
    );
    expect(await world.store.execute("bulk", makeDeletion(of))).toMatchObject({ done: 1 });
  });

  test("keeps redacted content hidden, although the settings of its message are unknown", async () => {
    const { world, alter } = await opened();
    await world.account();
    const { messageId } = await world.publishFailing({ redaction: { body: true, headers: true } });
    alter(
      "update stored_messages set detail = replace(detail, 'one.example', 'two.example') " +
        `where id = '${messageId}'`,
    );
    const [entry] = (await world.store.read.deadLetters(makeOldestFirstQuery())).entries;
    expect(entry && JSON.stringify(toJson(deadLetterFields, entry))).toContain('"responseBody":"REDACTED:');
  });

  test("of a schedule pauses it until it is created again; other schedules fire", async () => {
    const { world, alter } = await opened();
    await world.account();
    const { body, ...messageInput } = makeInput();
    for (const id of ["a", "b"])
      await world.store.execute("createSchedule", {
        account: "acc",
        id,
        cron: "* * * * *",
        messageInput,
        body,
      });
    alter("update schedules set body = cast('hallo' as blob) where id = 'a'");
    world.clock.now += minute;
    expect((await world.claim()).map(({ message }) => message.scheduleId)).toEqual(["b"]);
    expect(await world.store.read.findResource("schedules", "acc", "a")).toMatchObject({
      paused: true,
      damaged: true,
      dueAt: null,
    });
    expect(world.faults.join()).toContain("schedule a of account acc is damaged");
    await expect(world.store.execute("resumeSchedule", { account: "acc", id: "a" })).rejects.toThrow(
      "is damaged in the store",
    );
    await world.store.execute("createSchedule", {
      account: "acc",
      id: "a",
      cron: "* * * * *",
      messageInput,
      body,
    });
    expect(await world.store.read.findResource("schedules", "acc", "a")).not.toHaveProperty("damaged");
  });

  test.each([
    [
      "schedules",
      "update schedules set due_at = 9007199254740993 where id = 'a'",
      /schedules acc a is damaged/,
    ],
    [
      "schedules",
      "update schedules set due_at = -9007199254740993 where id = 'a'",
      /schedules acc a is damaged/,
    ],
    [
      "messages",
      "update stored_messages set checksum = 9007199254740993",
      /stored_messages acc \S+ is damaged/,
    ],
    [
      "counts",
      "update store_counts set value = 9007199254740993",
      /messages should have \d{16} rows, and has 2;/,
    ],
  ])(
    "with a number too large for JavaScript is reported at the start, which continues: %s",
    async (...[, sql, report]) => {
      const first = await opened();
      await first.world.account();
      const { body, ...messageInput } = makeInput();
      for (const id of ["a", "b"])
        await first.world.store.execute("createSchedule", {
          account: "acc",
          id,
          cron: "* * * * *",
          messageInput,
          body,
        });
      const waiting = await first.world.send({ delay: 3 * minute });
      await first.world.send({ delay: 3 * minute });
      await first.world.store.close();
      first.alter(sql);
      const { world, found } = await opened(first.path);
      expect(texts(found)).toMatch(report);
      world.clock.now += minute;
      expect((await world.claim()).map(({ message }) => message.scheduleId)).toContain("b");
      expect(await world.store.read.findResource("schedules", "acc", "a")).toBeDefined();
      expect(await world.store.read.message("acc", waiting)).toBeDefined();
      await world.store.read.storeFigures();
    },
  );

  test("of a URL group refuses messages until it has endpoints again; lists show all groups", async () => {
    const { world, alter } = await opened();
    await world.account();
    const endpoints = [{ name: "one", url: "https://one.example/" }];
    for (const name of ["a", "b"])
      await world.store.execute("addEndpoints", { account: "acc", name, endpoints });
    alter(`update url_groups set detail = replace(detail, 'one.example', 'two.example') where name = 'a'`);
    expect(await world.store.read.listResources("urlGroups", { account: "acc", limit: 10 })).toMatchObject([
      { name: "a", damaged: true, endpoints: [] },
      { name: "b" },
    ]);
    const input = makeInput({ url: "", group: "a" });
    expect(await world.publish([input])).toMatchObject([
      { refused: "invalid", message: expect.stringContaining("is damaged in the store") },
    ]);
    await world.store.execute("addEndpoints", { account: "acc", name: "a", endpoints });
    expect(await world.publish([input])).toMatchObject([{ each: [{ url: "https://one.example/" }] }]);
  });

  test("of a step fails the run, which can be restarted but not resumed", async () => {
    const { world, alter } = await opened();
    await world.account();
    await world.publish([makeRunStart("wfr_1"), makeRunStep("wfr_1", 1)]);
    for (const delivery of world.delivered()) await world.settle(delivery);
    alter(`update steps set body = cast('{"altered":1}' as blob) where id like '%/r1'`);
    await world.publish([makeRunStep("wfr_1", 2)]);
    const [delivery] = world.delivered();
    expect(delivery?.unsendable).toContain("damaged");
    if (delivery)
      await world.settle(delivery, { status: null, error: delivery.unsendable ?? "", isFinal: true });
    const { runs } = await world.store.read.runs({ account: "acc", filter: {}, cursor: null, count: 10 });
    expect(runs).toMatchObject([
      { state: "RUN_FAILED", failure: { error: expect.stringContaining("damaged") } },
    ]);
    const resume = {
      account: "acc",
      dlqId: runs[0]?.failure?.dlqId ?? "",
      logRetention: minute,
      overrides: {},
    };
    await expect(world.store.execute("resumeRun", { ...resume, from: "failure" })).rejects.toThrow(
      "is damaged in the store",
    );
    expect(await world.store.execute("resumeRun", { ...resume, from: "beginning" })).toHaveProperty("runId");
  });

  test("of a run's message fails the run", async () => {
    const { world, alter } = await opened();
    await world.account();
    await world.publish([makeRunStart("wfr_1", { delay: minute })]);
    alter(`update stored_messages set detail = replace(detail, 'flow.example', 'flaw.example')`);
    world.clock.now += minute;
    expect(await world.claim()).toEqual([]);
    const { runs } = await world.store.read.runs({ account: "acc", filter: {}, cursor: null, count: 10 });
    expect(runs).toMatchObject([
      { state: "RUN_FAILED", failure: { error: expect.stringContaining("damaged") } },
    ]);
  });
});

describe("the write-ahead log", () => {
  /** Returns a copy of a store with many commits in its log. */
  async function copied(
    damage: (log: Buffer) => void,
    { isCheckpointed = false, lastBytes = 0 } = {},
  ): Promise<string> {
    const { path, world } = await opened();
    await world.account();
    for (let n = 0; n < 19; n++) await world.send({ delay: minute });
    await world.send({ delay: minute, body: new Uint8Array(lastBytes) });
    if (isCheckpointed) checkpoint(path);
    const log = readFileSync(`${path}-wal`);
    damage(log);
    const folder = join(createTestFolder(), "copy");
    mkdirSync(folder);
    const copy = join(folder, "store.db");
    writeFileSync(copy, readFileSync(path));
    writeFileSync(`${copy}-wal`, log);
    return copy;
  }

  /** Copies the whole log into the file, and leaves the log as it is. */
  function checkpoint(path: string): void {
    const database = new DatabaseSync(path);
    database.exec("pragma wal_checkpoint(passive)");
    database.close();
  }

  const unfinished = async (world: StoreFixture): Promise<number> =>
    (await world.store.read.unfinished({ account: "acc", filter: {}, cursor: null, count: 100 })).messageIds
      .length;

  test.each([
    ["in the middle", (log: Buffer) => log.length / 2],
    ["in its header", () => 20],
  ])("that was altered %s is refused each time, and nothing is changed", async (_where, place) => {
    const path = await copied((log) => (log[place(log)] = (log[place(log)] ?? 0) ^ 1));
    const before = [path, `${path}-wal`].map((file) => readFileSync(file));
    for (let time = 0; time < 2; time++)
      await expect(opened(path)).rejects.toThrow(
        /store\.db-wal: damaged at frame \d+; \d+ acknowledged changes follow it.*restore both files/,
      );
    expect([path, `${path}-wal`].map((file) => readFileSync(file))).toEqual(before);
    await expect(openSqliteForMove(path, { name: "the store", isTarget: false })).rejects.toThrow(
      "store.db-wal: damaged",
    );
  });

  test("that was altered after a complete checkpoint loses nothing, and a copy of it is kept", async () => {
    const path = await copied((log) => (log[log.length / 2] = (log[log.length / 2] ?? 0) ^ 1), {
      isCheckpointed: true,
    });
    const { world, found } = await opened(path);
    expect(texts(found)).toMatch(
      new RegExp(
        String.raw`store\.db-wal: damaged at frame \d+; all of it is in .*store\.db, so nothing is lost; ` +
          String.raw`.*store\.db-wal\.damaged`,
      ),
    );
    expect(readFileSync(`${path}-wal.damaged`).byteLength).toBeGreaterThan(0);
    expect(await unfinished(world)).toBe(20);
    await world.store.close();
    expect((await opened(path)).found).toEqual([]);
  });

  test("that was altered and only partly checkpointed is refused", async () => {
    const path = await copied((log) => (log[200] = (log[200] ?? 0) ^ 1), { isCheckpointed: true });
    const file = readFileSync(path);
    // The last page did not reach the file.
    writeFileSync(path, file.fill(0, file.length - 8_192));
    await expect(opened(path)).rejects.toThrow("store.db-wal: damaged at frame 0");
  });

  test("whose last commit is torn, as after a power failure, is read up to it and reported", async () => {
    // The commit has many frames, and one of the first is lost.
    const path = await copied((log) => log.fill(0, log.length - 25 * 8_216, log.length - 24 * 8_216), {
      lastBytes: 200_000,
    });
    const { world, found } = await opened(path);
    expect(texts(found)).toMatch(
      /damaged at frame \d+; the \d+ frames from there on are not read; if the cause is a power failure/,
    );
    expect(await unfinished(world)).toBe(19);
    // The next start does not find the rest of the old log, whatever was stored in the meantime.
    await world.send({ delay: minute });
    const folder = join(createTestFolder(), "killed");
    mkdirSync(folder);
    for (const end of ["", "-wal"])
      writeFileSync(join(folder, `store.db${end}`), readFileSync(`${path}${end}`));
    const again = await opened(join(folder, "store.db"));
    expect(again.found).toEqual([]);
    expect(await unfinished(again.world)).toBe(20);
  });

  test("that ends early, as after a power failure, is not reported", async () => {
    const path = await copied((log) => log.fill(0, log.length - 3_000));
    const { world, found } = await opened(path);
    expect(found).toEqual([]);
    expect(await unfinished(world)).toBe(19);
  });
});

describe("a key file", () => {
  const ring = (text: string): (() => unknown) => {
    const file = join(createTestFolder(), "keys");
    writeFileSync(file, text);
    return () => readKeyRing({ file });
  };

  test("with a flipped bit is refused, and the error says how to keep an edited one", () => {
    const text = withChecksum(`${makeKeyLine(1)}\n`);
    expect(ring(text)()).toHaveLength(1);
    expect(ring(text.replace(/^1:./, (found) => (found === "1:A" ? "1:B" : "1:A")))).toThrow(
      /keys: damaged or edited.*remove its line "# checksum: /,
    );
    expect(ring(`${text}${makeKeyLine(2)}\n`)).toThrow("its checksum does not match");
  });

  test("without a checksum is accepted because people may write it by hand", () => {
    expect(ring(`${makeKeyLine(2)}\n${makeKeyLine(1)}\n`)()).toHaveLength(2);
  });
});
