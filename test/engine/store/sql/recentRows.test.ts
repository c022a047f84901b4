import { describe, expect, test } from "vitest";
import type { Key, Rows, TableName } from "../../../../src/engine/core/decision/command.ts";
import type { MessageState } from "../../../../src/engine/core/model/messageState.ts";
import type { ActiveRun, Run } from "../../../../src/engine/core/model/run.ts";
import type { Loader } from "../../../../src/engine/store/batch/loader.ts";
import { RecentRows } from "../../../../src/engine/store/sql/recentRows.ts";

const rowOf = (id: string, attempts: number): MessageState => ({
  account: "a",
  id,
  state: "pending",
  dueAt: 0,
  attempts,
  lostAttempts: 0,
  leasedBy: null,
  host: "h",
  size: 0,
  reportsOutcome: false,
  queue: null,
  flowControlKey: null,
  slot: null,
  waitlist: null,
  run: null,
  tags: [],
  timeKeys: "",
  endpoint: "https://h/",
});

/** Returns a row cache in front of a storage that records which keys it was asked for. */
function open() {
  const stored = new Map<string, MessageState>();
  const asked: string[] = [];
  const recent = new RecentRows();
  const rows = async (_table: unknown, keys: readonly Key[]): Promise<readonly MessageState[]> =>
    keys.flatMap(([, id = ""]) => {
      asked.push(id);
      const row = stored.get(id);
      return row ? [row] : [];
    });
  const loader = recent.cachedLoader({ rows } as unknown as Loader);
  return {
    asked,
    recent,
    /** Records a batch that writes or deletes this row. */
    write(id: string, row: MessageState | undefined): void {
      if (row) stored.set(id, row);
      else stored.delete(id);
      recent.record({
        changes: (table) => (table === "messages" ? [{ key: ["a", id], now: row }] : []) as never,
      });
    },
    read: async (id: string, account = "a"): Promise<MessageState | undefined> =>
      (await loader.rows("messages", [[account, id]]))[0],
  };
}

test("a row that a batch has written is not read again, and is unknown in another account", async () => {
  const { write, read, asked, recent } = open();
  write("m", rowOf("m", 1));
  expect(await read("m")).toMatchObject({ attempts: 1 });
  expect(asked).toEqual([]);
  await read("m", "b");
  expect(asked).toEqual(["m"]);
  recent.forget();
  expect(await read("m")).toMatchObject({ attempts: 1 });
  expect(asked).toEqual(["m", "m"]);
});

test("a cached row is always the one that was written last", async () => {
  const { write, read, asked } = open();
  const others = (count: number): void => {
    for (let number = 0; number < count; number++) write(`o${number}`, rowOf(`o${number}`, 0));
  };
  write("m", rowOf("m", 1));
  others(6_000);
  expect(await read("m")).toMatchObject({ attempts: 1 });
  expect(asked).toEqual([]);
  // The row is now in both generations.
  write("m", rowOf("m", 2));
  expect(await read("m")).toMatchObject({ attempts: 2 });
  write("m", undefined);
  expect(await read("m")).toBe(undefined);
  expect(asked).toEqual(["m"]);
  write("m", rowOf("m", 3));
  others(11_000);
  expect(await read("m")).toMatchObject({ attempts: 3 });
  expect(asked).toEqual(["m", "m"]);
});

describe("runs", () => {
  const settings: Run["settings"] = {
    method: "POST",
    headers: [],
    retries: null,
    retryDelay: null,
    timeout: null,
    flowControl: null,
    callback: null,
    failureCallback: null,
  };
  const run = { account: "a", id: "run_1", endedAt: null, invoker: null, settings } as unknown as Run;
  const active: ActiveRun = {
    account: "a",
    runId: "r",
    run: "run_1",
    steps: 1,
    size: 1,
    waiting: 0,
    firstMessage: "m",
    lastCall: null,
  };

  /** Reports whether a written row is cached and not read again. */
  async function isKnown<T extends "runs" | "activeRuns">(
    table: T,
    row: Rows[T],
    id: string,
  ): Promise<boolean> {
    const recent = new RecentRows();
    let asked = 0;
    const rows = async (): Promise<readonly never[]> => {
      asked++;
      return [];
    };
    const loader = recent.cachedLoader({ rows } as unknown as Loader);
    const changed = (name: TableName): unknown => (name === table ? [{ key: ["a", id], now: row }] : []);
    recent.record({ changes: changed as never });
    const found = await loader.rows(table, [["a", id]]);
    expect(found).toEqual(asked === 0 ? [row] : []);
    return asked === 0;
  }

  test("that are active are cached with their progress", async () => {
    expect(await isKnown("runs", run, "run_1")).toBe(true);
    expect(await isKnown("activeRuns", active, "r")).toBe(true);
  });

  const long = [["X-Long", "x".repeat(5_000)]] as const;
  test.each<[string, Partial<Run>]>([
    ["have ended", { endedAt: 1 }],
    [
      "have an invoker",
      { invoker: { run: "run_2", runId: "s", createdAt: 0, url: "u", headers: [], step: {} } },
    ],
    ["have long headers", { settings: { ...settings, headers: long } }],
    [
      "have long headers for their failure callback",
      { settings: { ...settings, failureCallback: { ...settings, url: "u", headers: long } } },
    ],
  ])("that %s are not cached", async (_, part) => {
    expect(await isKnown("runs", { ...run, ...part }, "run_1")).toBe(false);
  });
});

describe("counts", () => {
  const need = { account: "a", name: "groups", limit: 5 } as const;

  /** Returns cached counts of URL groups in front of a storage with this many groups. */
  function openCounts(stored: number) {
    let asked = 0;
    const recent = new RecentRows();
    const quotaCounts: Loader["quotaCounts"] = async (needs) => {
      asked++;
      return needs.map(({ limit }) => Math.min(stored, limit));
    };
    const loader = recent.cachedLoader({ quotaCounts } as unknown as Loader);
    const write = (change: object): void =>
      recent.record({ changes: (table) => (table === "urlGroups" ? [change] : []) as never });
    return { asked: () => asked, recent, loader, write };
  }

  test("are read once and follow created and removed rows", async () => {
    const { asked, loader, write } = openCounts(2);
    expect(await loader.quotaCounts([need, { ...need, account: "b" }])).toEqual([2, 2]);
    for (const id of ["x", "y"]) write({ key: ["a", id], loaded: true, before: undefined, now: {} });
    write({ key: ["a", "x"], loaded: true, before: {}, now: {} });
    write({ key: ["b", "z"], loaded: true, before: {}, now: undefined });
    expect(await loader.quotaCounts([{ ...need, account: "b" }, need, { ...need, limit: 3 }])).toEqual([
      1, 4, 3,
    ]);
    expect(asked()).toBe(1);
  });

  test("are read again if the number of rows is unknown", async () => {
    const { asked, loader, recent, write } = openCounts(9);
    expect([await loader.quotaCounts([need]), await loader.quotaCounts([{ ...need, limit: 20 }])]).toEqual([
      [5],
      [9],
    ]);
    expect(asked()).toBe(2);
    expect(await loader.quotaCounts([need])).toEqual([5]);
    expect(asked()).toBe(2);
    write({ key: ["a", "x"], loaded: false, before: undefined, now: undefined });
    await loader.quotaCounts([{ ...need, limit: 20 }]);
    recent.forget();
    await loader.quotaCounts([{ ...need, limit: 20 }]);
    expect(asked()).toBe(4);
  });

  test("of more than 1,000 accounts are right although most are evicted", async () => {
    const { loader } = openCounts(3);
    const many = Array.from({ length: 700 }, (_, n) => ({ ...need, account: `m${n}` }));
    await loader.quotaCounts(many);
    const others = many.map((one) => Object.assign({}, one, { account: `other ${one.account}` }));
    const mixed = many.flatMap((one, at) => [one, others[at] ?? one]);
    expect(new Set(await loader.quotaCounts(mixed))).toEqual(new Set([3]));
  });
});
