import { DatabaseSync } from "node:sqlite";
import { describe, expect, onTestFinished, test } from "vitest";
import { restore, Source } from "./replicaSource.ts";

const unseen = "another program has written to the store, and parts of its log were not seen";

async function openSource(): Promise<Source> {
  const source = new Source();
  source.put(1, "first");
  await source.complete();
  return source;
}

/** Another program, with its own connection. */
function openOther(source: Source): DatabaseSync {
  const other = new DatabaseSync(source.path);
  onTestFinished(() => other.close());
  return other;
}

async function expectAll(source: Source): Promise<void> {
  await source.take();
  source.writer.flush();
  expect(restore(source.folder)).toEqual(source.rows());
}

describe("a change that was not read yet", () => {
  test("is read before the next transaction overwrites it", async () => {
    const source = await openSource();
    const { restarts } = source;
    for (let id = 2; id < 6; id++) {
      source.put(id, `unread ${id}`);
      source.put(id + 100, `unread too ${id}`);
      source.checkpoint();
    }
    await expectAll(source);
    expect(source.restarts).toBe(restarts + 3);
  });

  test("stays if a checkpoint ends while the next transaction writes", async () => {
    const source = await openSource();
    const { restarts } = source;
    source.put(2, "unread");
    source.change(
      () => source.db.exec("insert into things values (3, 'next')"),
      () => source.checkpoint(),
    );
    source.put(4, "after");
    await expectAll(source);
    expect(source.restarts).toBe(restarts);
  });

  test("is read if the next transaction may overwrite it, and is rolled back", async () => {
    const source = await openSource();
    source.put(2, "unread");
    source.checkpoint();
    const text = "x".repeat(5_000_000);
    // More than the cache of pages holds, so frames are written before the end.
    source.db.exec("pragma cache_size = 10");
    source.change(() => {
      source.db.prepare("insert into things values (3, ?)").run(text);
      source.db.exec("rollback");
    });
    source.put(4, "after");
    await expectAll(source);
    expect(source.rows()).toHaveLength(3);
  });

  test("is missed if a transaction does not announce itself, and this is found", async () => {
    const source = await openSource();
    source.put(2, "unread");
    source.checkpoint();
    source.db.exec("insert into things values (3, 'next')");
    await expect(source.take()).rejects.toThrow(unseen);
  });
});

describe("another program", () => {
  test("that only adds to the log is followed", async () => {
    const source = await openSource();
    source.put(2, "unread");
    openOther(source).exec("insert into things values (3, 'other')");
    source.put(4, "after");
    await expectAll(source);
  });

  test("that adds to the log, before a checkpoint lets the log begin again, is followed", async () => {
    const source = await openSource();
    openOther(source).exec("insert into things values (2, 'other')");
    source.checkpoint();
    source.put(3, "after");
    await expectAll(source);
  });

  test("that begins the log again makes the replica begin again", async () => {
    const source = await openSource();
    source.put(2, "unread");
    source.checkpoint();
    openOther(source).exec("insert into things values (3, 'other')");
    await expect(source.take()).rejects.toThrow(unseen);
  });

  test.each(["before", "after"])(
    "that empties the log %s a read makes the replica begin again",
    async (when) => {
      const source = await openSource();
      const other = openOther(source);
      other.exec("insert into things values (2, 'other')");
      if (when === "after") await source.take();
      expect(other.prepare("pragma wal_checkpoint(truncate)").get()).toMatchObject({ busy: 0 });
      // The log is empty now, and its last content is unknown.
      await expect(source.take()).rejects.toThrow(unseen);
    },
  );
});
