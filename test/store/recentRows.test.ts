import { expect, test } from "vitest";
import type { Key } from "../../src/core/command.ts";
import type { MessageState } from "../../src/core/message.ts";
import type { Loader } from "../../src/store/loader.ts";
import { RecentRows } from "../../src/store/recentRows.ts";

const rowOf = (id: string, attempts: number): MessageState => ({
  ...{ account: "a", id, state: "pending", dueAt: 0, attempts, lost: 0, leasedBy: null, host: "h", size: 0, tells: false },
  ...{ queue: null, flowKey: null, slot: null, line: null, run: null, marks: [] },
});

/** Rows that are remembered, over a storage that says what it was asked for. */
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
  const loader = recent.before({ rows } as unknown as Loader);
  return {
    asked,
    recent,
    /** A batch that writes this row, or deletes it. */
    write(id: string, row: MessageState | undefined): void {
      if (row) stored.set(id, row);
      else stored.delete(id);
      recent.learn({ changes: (table) => (table === "messages" ? [{ key: ["a", id], now: row }] : []) as never });
    },
    read: async (id: string, account = "a"): Promise<MessageState | undefined> => (await loader.rows("messages", [[account, id]]))[0],
  };
}

test("what a batch has written is not asked for again, and of another account it is not known", async () => {
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

test("however much is written in between, a row is as it was written last, or is asked for", async () => {
  const { write, read, asked } = open();
  const others = (count: number): void => {
    for (let number = 0; number < count; number++) write(`o${number}`, rowOf(`o${number}`, 0));
  };
  write("m", rowOf("m", 1));
  others(6_000);
  expect(await read("m")).toMatchObject({ attempts: 1 });
  expect(asked).toEqual([]);
  // Now it is in both generations.
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
