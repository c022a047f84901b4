import { join } from "node:path";
import { expect, onTestFinished, test } from "vitest";
import { createPostgresTables } from "../../../src/engine/store/postgres/schema.ts";
import type { MoveEndpoint } from "../../../src/operations/moveStore/move.ts";
import { move } from "../../../src/operations/moveStore/move.ts";
import { openPostgresForMove } from "../../../src/operations/moveStore/postgres.ts";
import { openSqliteForMove } from "../../../src/operations/moveStore/sqlite.ts";
import { readMoved } from "../../../src/engine/store/sql/movedMark.ts";
import { openSqlite } from "../../../src/engine/store/sqlite/database.ts";
import { StorageRefused } from "../../../src/engine/store/layout/storageErrors.ts";
import { freshDatabase } from "../../postgres.ts";
import { createSteppedClock, createTestFolder, TestClock } from "../../engine/store/storeFixture.ts";

// The source of a finished move is marked, and no server starts on it.

/** Opens a side of a move. It is closed when the test ends, if not before. */
async function opened(side: Promise<MoveEndpoint>): Promise<MoveEndpoint> {
  const { close, ...rest } = await side;
  let closing: Promise<void> | null = null;
  const once = (): Promise<void> => (closing ??= close());
  onTestFinished(once);
  return { ...rest, close: once };
}

const clock = createSteppedClock(new TestClock());
const silent = (): void => undefined;
const now = (): number => 1_800_000_000_000;
const makePath = (): string => join(createTestFolder(), "waypost.db");

const open = (file: string, isTarget: boolean): Promise<MoveEndpoint> =>
  opened(openSqliteForMove(file, { name: file, isTarget }));

const addRow = "insert into host_waitlists (account, host, due_at) values ('acc', 'host', 1)";

async function fill(path: string): Promise<void> {
  const side = await open(path, false);
  await side.query(addRow, []);
  await side.close();
}

/** One side of a move that is interrupted: its name, and how it is opened for the move and for a server. */
type Side = { open(isTarget: boolean): Promise<MoveEndpoint>; serve(): Promise<unknown> };

const refuse = ({ to }: { to: string }): void => {
  throw new StorageRefused(`moved to ${to}`);
};

const sides = {
  SQLite: async (): Promise<Side> => {
    const path = makePath();
    return {
      open: (isTarget) =>
        opened(openSqliteForMove(path, { name: isTarget ? "the target" : "the source", isTarget })),
      serve: async () => {
        const database = openSqlite(path);
        await database.createTables({ onMoved: refuse }).finally(() => database.close());
      },
    };
  },
  PostgreSQL: async (): Promise<Side> => {
    const url = await freshDatabase();
    return {
      open: (isTarget) =>
        opened(openPostgresForMove(url, { name: isTarget ? "the target" : "the source", isTarget, clock })),
      serve: () => createPostgresTables({ url, clock }, { onMoved: refuse }),
    };
  },
};

/** Returns an endpoint whose power fails at the end of `steps` steps that change something. */
function failAfter(side: MoveEndpoint, steps: { left: number }): MoveEndpoint {
  const step = async <T>(run: () => Promise<T>): Promise<T> => {
    if (steps.left-- === 0) throw new Error("the power failed");
    return run();
  };
  return {
    ...side,
    query: (sql, values) =>
      /^(insert|delete)/.test(sql) ? step(() => side.query(sql, values)) : side.query(sql, values),
    insert: (table, rows) => step(() => side.insert(table, rows)),
    commit: () => step(() => side.commit()),
    finish: () => step(() => side.finish()),
  };
}

for (const [from, to, options] of [
  ["SQLite", "SQLite", {}],
  ["SQLite", "PostgreSQL", { tags: "long" }],
  ["PostgreSQL", "SQLite", { tags: "long" }],
] as const) {
  test(
    `a server starts on one side at most, wherever a move from ${from} to ${to} stops`,
    options,
    async () => {
      for (let done = false, count = 0; !done; count++) {
        const [source, target] = [await sides[from](), await sides[to]()];
        const first = await source.open(false);
        await first.query(addRow, []);
        await first.commit();
        await first.close();
        const steps = { left: count };
        const run = async (): Promise<void> => {
          const [a, b] = [await source.open(false), await target.open(true)];
          await move({ from: failAfter(a, steps), to: failAfter(b, steps), report: silent, now })
            .finally(() => a.close())
            .finally(() => b.close());
        };
        const starts = (side: Side): Promise<boolean> =>
          side.serve().then(
            () => true,
            (error: unknown) => {
              expect(error).toBeInstanceOf(StorageRefused);
              return false;
            },
          );
        const error = await run().catch((failure: unknown) => failure);
        if (error === undefined) done = true;
        else {
          expect(error).toEqual(new Error("the power failed"));
          const started = [await starts(source), await starts(target)];
          // A target that was never claimed is an empty store.
          if (count > 0) expect(started.filter(Boolean).length, `after ${count} steps`).toBeLessThan(2);
          // Nothing is marked before everything is there.
          if (count < 2) expect(started[0]).toBe(true);
          steps.left = Infinity;
          const again = await run().catch((failure: unknown) => failure);
          if (started[1] && count > 0) expect(again).toBeInstanceOf(StorageRefused);
          else expect(again).toBeUndefined();
        }
        expect([await starts(source), await starts(target)]).toEqual([false, true]);
      }
    },
  );
}

test("a moved store is moved again only with force, and its newest mark counts", async () => {
  const path = makePath();
  await fill(path);
  const [second, third] = [makePath(), makePath()];
  await move({ from: await open(path, false), to: await open(second, true), report: silent, now });
  const finished = await open(second, true);
  await expect(
    move({ from: await open(path, false), to: finished, report: silent, now, force: true }),
  ).rejects.toThrow("already has data");
  const last = await open(third, true);
  await expect(move({ from: await open(path, false), to: last, report: silent, now })).rejects.toThrow(
    `${path}: everything in this store was moved to ${second} at 2027-01-15T08:00:00.000Z; move it`,
  );
  await move({ from: await open(path, false), to: last, report: silent, now, force: true });
  const file = openSqlite(path);
  expect(await readMoved(file.connection)).toEqual({ to: third, at: "2027-01-15T08:00:00.000Z" });
  file.close();
});

test("an emptied source becomes a target, and is then no longer marked", async () => {
  const [path, other] = [makePath(), makePath()];
  await move({ from: await open(path, false), to: await open(other, true), report: silent, now });
  await fill(other);
  const from = await open(other, false);
  await move({ from, to: await open(path, true), report: silent, now, force: true });
  const file = openSqlite(path);
  expect(await readMoved(file.connection)).toBeNull();
  file.close();
});
