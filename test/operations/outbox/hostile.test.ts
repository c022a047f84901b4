import { setTimeout as pause } from "node:timers/promises";
import { describe, expect, onTestFinished, test, vi } from "vitest";
import type { Clock } from "../../../src/engine/clock/clock.ts";
import { systemClock } from "../../../src/engine/clock/clock.ts";
import { createNameCheck } from "../../../src/engine/delivery/http/allowedNames.ts";
import { checkCounts, checkRows } from "../../../src/operations/outbox/answers.ts";
import type { Connect } from "../../../src/operations/outbox/database.ts";
import { openDatabase } from "../../../src/operations/outbox/database.ts";
import { OutboxFailure } from "../../../src/operations/outbox/failure.ts";
import { parseOutboxUrl } from "../../../src/operations/outbox/place.ts";
import { Relays } from "../../../src/operations/outbox/relays.ts";
import { createTestServer } from "../../api/testServer.ts";
import type { Answer } from "./fakePostgres.ts";
import { describeColumns, endAnswer, makeMessage, makeRow, startFakePostgres } from "./fakePostgres.ts";
import { makeOutbox, relayParts, startRelay } from "./userDatabase.ts";

// A tenant chooses the database of its outbox, so the database may be hostile.

const none: Answer = endAnswer;
const key = "6f9619ff-8b86-4d01-b42d-00cf4fc964ff";

async function open(answer: (statement: string) => Answer) {
  const server = await createTestServer();
  const fake = await startFakePostgres(answer);
  const database = await openDatabase(makeOutbox(fake.url), relayParts(server.store));
  onTestFinished(() => database.close());
  return { fake, database };
}

describe("the URL of a database", () => {
  test.each([
    "postgres://db.example/shop",
    "postgres://shop@db.example/shop",
    "postgres://:secret@db.example/shop",
    "postgres://shop:@db.example/shop",
    "postgres://shop%00replication:secret@db.example/shop",
    "postgres://shop:secret@db.example:0/shop",
    "postgres://shop:secret@db.example/shop?sslmode=constructor",
  ])("%s is refused, because the driver would fill the gap", (url) => {
    expect(() => parseOutboxUrl(url)).toThrow("databaseUrl: ");
  });

  test.each(["%2F", "%5C", "%25", "%00", "%23", "%40"])("must not have %s in its host", (encoded) => {
    expect(() => parseOutboxUrl(`postgres://u:p@db.example${encoded}x.evil.example/shop`)).toThrow(
      "databaseUrl: the host is not a name or an address",
    );
  });

  test.each([
    ["DB.Example", "db.example"],
    ["d%62.example", "db.example"],
    ["127.1", "127.0.0.1"],
    ["[::1]", "::1"],
  ])("has the host %s in the form %s", async (written, host) => {
    const url = `postgres://u:p@${written}/shop`;
    expect(parseOutboxUrl(url).host).toBe(host);
    const connect = vi.fn<Connect["connect"]>(() => Promise.reject(new Error("no")));
    const parts = { connect, authorities: [] };
    const open = (allowedHosts: string[]) => openDatabase({ ...makeOutbox(url), allowedHosts }, parts);
    await expect(open(["other.example"])).rejects.toThrow("is not allowed for this account");
    expect(connect).not.toHaveBeenCalled();
    await expect(open([host.includes(":") ? `[${host}]` : host])).rejects.toThrow("cannot be reached");
    expect(connect).toHaveBeenCalledWith({ host, port: 5432, account: "acc_1" });
  });
});

test("a string that is not a name matches no allowed name", () => {
  const isAllowed = createNameCheck(["*.internal", "lobe"]);
  expect(["db.internal", "DB.Internal.", "lobe"].map(isAllowed)).toEqual([true, true, true]);
  const wrong = [
    "evil.example\0.internal",
    "evil.example/.internal",
    "a b.internal",
    ".internal",
    "%.internal",
  ];
  expect(wrong.map(isAllowed)).toEqual(wrong.map(() => false));
});

test("a database receives nothing of the environment of the server", async () => {
  const variables = {
    ...{ PGUSER: "operator", PGPASSWORD: "operator", PGDATABASE: "operator", PGOPTIONS: "-c operator=1" },
    ...{ PGREPLICATION: "operator", PGCLIENT_ENCODING: "operator", PGAPPNAME: "operator" },
    ...{ PGSSLMODE: "require", PGSSLNEGOTIATION: "direct", PGHOST: "operator", PGPORT: "1" },
  };
  for (const [name, value] of Object.entries(variables)) vi.stubEnv(name, value);
  onTestFinished(() => void vi.unstubAllEnvs());
  const { fake, database } = await open(() => none);
  await database.run("select 1");
  expect(fake.passwords).toEqual(["secret"]);
  expect(fake.startups.join()).toContain("user\0shop\0database\0shop\0");
  expect(fake.startups.join()).not.toMatch(/operator|options|replication/);
});

describe("an answer", () => {
  const tooMuch = "the database answers with more than was asked for";

  test("that is too long closes the connection", async () => {
    let isStarted = false;
    const { database } = await open(() => {
      isStarted = true;
      const head = Buffer.alloc(5, "D");
      head.writeInt32BE(1_500_000_000, 1);
      return Buffer.concat([head, Buffer.alloc(8 * 1024 * 1024, 65)]);
    });
    await expect(database.run("select 1")).rejects.toThrow(tooMuch);
    expect(isStarted).toBe(true);
    await expect(database.run("select 1")).rejects.toThrow(OutboxFailure);
  });

  test("may be longer if the statement allows it", async () => {
    const text = "x".repeat(3 * 1024 * 1024);
    const { database } = await open(() => ({ columns: [["text", 25]], rows: [[text]] }));
    expect(await database.run("select 1", 4 * 1024 * 1024)).toEqual([{ text }]);
    await expect(database.run("select 1")).rejects.toThrow(tooMuch);
  });

  test.each([
    ["rows", [describeColumns([["one", 23]]), ...Array.from({ length: 5_000 }, () => makeRow(["1"]))]],
    ["results", Array.from({ length: 5_000 }, () => makeMessage("C", Buffer.from("SELECT 1\0")))],
    [
      "columns",
      [
        describeColumns(Array.from({ length: 10_000 }, (_, at) => [`c${at}`, 23] as const)),
        ...Array.from({ length: 1_900 }, () => makeRow([])),
      ],
    ],
  ])("with too many %s closes the connection", async (_, parts) => {
    const { database } = await open(() => Buffer.concat([...parts, endAnswer]));
    await expect(database.run("select 1")).rejects.toThrow(tooMuch);
  });

  test("has only the types that the relay reads", async () => {
    const columns = [
      ["list", 1007],
      ["at", 1184],
      ["count", 23],
    ] as const;
    const { database } = await open(() => ({ columns, rows: [["{1,2}", "now", "7"]] }));
    expect(await database.run("select 1")).toEqual([{ list: "{1,2}", at: "now", count: 7 }]);
  });
});

describe("values of a database", () => {
  const row = {
    ...{ id: "1", key, is_workflow: false, destination: "https://app.example/", size: 1 },
    ...{ body: Buffer.from("x"), settings: {}, headers: {} },
  };
  const counts = { waiting: 1, rejected: 1, lag: 5, reason: "r", rejected_lag: null, owner: "own_1" };

  test.each([
    [{ id: "x" }],
    [{ id: 1 }],
    [{ id: "1".repeat(20) }],
    [{ key: "k".repeat(1_000) }],
    [{ key: null }],
    [{ is_workflow: "t" }],
    [{ destination: 5 }],
    [{ destination: "x".repeat(50_000) }],
    [{ body: 500_000_000 }],
    [{ body: "text" }],
    [{ body: Buffer.alloc(101) }],
    [{ size: -1 }],
    [{ settings: "abc" }],
    [{ headers: [] }],
  ])("are refused: a row with %o", (wrong) => {
    expect(checkRows([row], 100)).toEqual([row]);
    expect(() => checkRows([{ ...row, ...wrong }], 100)).toThrow(OutboxFailure);
  });

  test("are refused: more rows than a round has", () => {
    expect(() =>
      checkRows(
        Array.from({ length: 501 }, () => row),
        100,
      ),
    ).toThrow(OutboxFailure);
  });

  test.each([[{ waiting: 10_001 }], [{ rejected: "1" }], [{ lag: NaN }], [{ lag: "1" }], [{ reason: {} }]])(
    "are refused: counts with %o",
    (wrong) => {
      expect(() => checkCounts({ ...counts, ...wrong }, 100)).toThrow(OutboxFailure);
    },
  );

  test("are cut: reasons and times", () => {
    const found = { ...counts, reason: "r".repeat(5_000), lag: 1e300, rejected_lag: -1e300 };
    expect(checkCounts(found, 100)).toEqual({
      owner: "own_1",
      status: { waiting: 1, rejected: 1, reason: "r".repeat(1_000), oldestAt: 0, rejectedAt: 100 },
    });
  });
});

/** Returns the answers of a database whose rows return after they were deleted, always with new keys. */
function answerWithRows(): (statement: string) => Answer {
  let next = 0;
  return (statement) => {
    if (statement.includes("select version, owner")) return { columns: ownerColumns, rows: [["1", "own_1"]] };
    if (statement.includes("as waiting"))
      return { columns: countColumns, rows: [["1", "0", "5", null, null, "own_1"]] };
    if (statement.includes("select id::text, key from")) {
      const ids = /in \((.*)\)/s.exec(statement)?.[1]?.split(", ") ?? [];
      return { columns: rowColumns.slice(0, 2), rows: ids.map((id) => [id, makeKey(Number(id))]) };
    }
    if (statement.includes("with found as")) {
      const ids = Array.from({ length: 500 }, () => ++next);
      const rest = ["f", "https://app.example/", "\\x78", "1", "{}", "{}"];
      return { columns: rowColumns, rows: ids.map((id) => [String(id), makeKey(id)].concat(rest)) };
    }
    // The connection ends before the rows are deleted.
    return statement.includes("delete from") ? makeMessage("E", Buffer.from("C57P01\0\0")) : none;
  };
}
const makeKey = (id: number): string => `00000000-0000-4000-8000-${String(id).padStart(12, "0")}`;
const ownerColumns = [
  ["version", 23],
  ["owner", 25],
] as const;
const countColumns = [
  ...([
    ["waiting", 23],
    ["rejected", 23],
    ["lag", 701],
  ] as const),
  ...([
    ["reason", 25],
    ["rejected_lag", 701],
    ["owner", 25],
  ] as const),
];
const rowColumns = [
  ...([
    ["id", 25],
    ["key", 25],
    ["is_workflow", 16],
    ["destination", 25],
  ] as const),
  ...([
    ["body", 17],
    ["size", 23],
    ["settings", 3802],
    ["headers", 3802],
  ] as const),
];

test("a database that keeps deleted rows leaves few marks", async () => {
  const server = await createTestServer();
  const fake = await startFakePostgres(answerWithRows());
  await startRelay(relayParts(server.store), makeOutbox(fake.url));
  const read = async () => (await server.store.read.outboxes("acc_1"))[0];
  await expect.poll(async () => (await read())?.error).toBe("the database keeps rows that were deleted");
  expect((await read())?.marks.length).toBe(1_000);
});

test("a database that reports a row and then fails is tried again only after a wait", async () => {
  const notice = makeMessage("A", Buffer.alloc(4), Buffer.from("waypost_outbox\0\0"));
  const failure = makeMessage("E", Buffer.from("C53300\0\0"));
  const fake = await startFakePostgres((statement) => {
    if (statement.includes("select version, owner")) return { columns: ownerColumns, rows: [["1", "own_1"]] };
    if (!statement.includes("as waiting")) return none;
    return Buffer.concat([notice, failure, makeMessage("Z", Buffer.from("I"))]);
  });
  const server = await createTestServer();
  let waits = 0;
  const clock: Clock = {
    now: () => Date.now(),
    sleep: (_until, wake) => {
      waits++;
      return systemClock.sleep(Date.now() + 1, wake);
    },
  };
  const relay = await startRelay(relayParts(server.store, { clock }), makeOutbox(fake.url));
  await expect.poll(() => fake.startups.length).toBeGreaterThan(5);
  await relay.stop();
  expect((await server.store.read.outboxes("acc_1"))[0]?.error).toBe("the database has no free connection");
  expect(waits).toBeGreaterThanOrEqual(fake.startups.length - 1);
});

test("an outbox with a silent database does not delay others", async () => {
  const server = await createTestServer();
  const silent = await startFakePostgres(() => null);
  let silentBefore: number | null = null;
  const other = await startFakePostgres(() => {
    silentBefore ??= silent.statements.length;
    return none;
  });
  const relays = new Relays(relayParts(server.store));
  relays.start();
  onTestFinished(() => relays.stop());
  const set = (url: string, name: string, schema = "waypost") =>
    server.store.execute("setOutbox", { account: "acc_1", ...makeOutbox(url, { name, schema }).setting });
  await set(silent.url, "silent");
  await expect.poll(() => silent.statements.length).toBe(1);
  await set(silent.url, "silent", "second");
  await pause(50);
  await set(other.url, "other");
  await expect.poll(() => other.statements.length).toBeGreaterThan(0);
  // The changed outbox follows only after the grace, which is shorter than the 15 s that an answer may take.
  expect(silentBefore).toBe(1);
  await expect.poll(() => silent.statements.length, { timeout: 5_000 }).toBe(2);
  const stoppedAt = performance.now();
  await relays.stop();
  expect(performance.now() - stoppedAt).toBeLessThan(4_000);
});
