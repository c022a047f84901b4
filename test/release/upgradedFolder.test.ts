// @module-tag long
import { statSync } from "node:fs";
import { join } from "node:path";
import { setTimeout as pause } from "node:timers/promises";
import { expect, test } from "vitest";
import { developmentToken, runWaypost, startWaypost, temporaryFolder } from "../server/waypost.ts";
import { makeNextVersion } from "./nextVersion.ts";

const fixture = join(import.meta.dirname, "../fixtures/0.1.0/waypost.db");

/** A migration that writes for about a second, more than the cache of SQLite has room for. */
const slow = {
  replaces: "create table accounts (",
  by: "create table drafts (id text primary key);\ncreate table accounts (",
  sql:
    "create table drafts (id text primary key); insert into drafts with recursive n (i) as " +
    "(select 1 union all select i + 1 from n where i < 1000000) select 'draft ' || i from n; " +
    "delete from drafts;",
  allowsOlder: false,
};

test("a backup that a newer version writes can be restored by the version of the store", async () => {
  const home = temporaryFolder();
  const [data, backup] = [join(home, "data"), join(home, "backup.db")];
  await runWaypost(["restore", fixture, "--data", data]).ended;
  const next = { TEST_SOURCES: makeNextVersion(slow) };
  const args = ["backup", backup, "--data", data, "--with-keys"];
  expect(await runWaypost(args, next).ended).toMatchObject({ code: 0, err: "" });
  for (const version of [{}, next]) {
    const target = ["--data", temporaryFolder()];
    expect(await runWaypost(["restore", backup, ...target], version).ended).toMatchObject({
      code: 0,
      err: "",
    });
  }
});

test("after kill -9 during an upgrade the version before works, and one of two upgrades it", async () => {
  const data = join(temporaryFolder(), "data");
  const args = ["dev", "--port", "0", "--hold", "--data", data];
  expect(await runWaypost(["restore", fixture, "--data", data]).ended).toMatchObject({ code: 0, err: "" });
  const next = { TEST_SOURCES: makeNextVersion(slow) };
  const listMessages = async (url: string): Promise<unknown> => {
    const headers = { authorization: `Bearer ${developmentToken}` };
    return (await fetch(`${url}/v2/messages?count=100`, { headers })).json();
  };
  const before = await startWaypost(args);
  const kept = await listMessages(before.url);
  expect(kept).toMatchObject({ messages: expect.arrayContaining([expect.anything()]) });
  before.kill("SIGTERM");
  await before.ended;

  const killed = runWaypost(args, next);
  const readLog = (): number => statSync(join(data, "waypost.db-wal"), { throwIfNoEntry: false })?.size ?? 0;
  while (readLog() < 4_000_000) await pause(2);
  killed.kill("SIGKILL");
  await killed.ended;
  expect(killed.out()).toBe("");
  const again = await startWaypost(args);
  expect(await listMessages(again.url)).toEqual(kept);
  again.kill("SIGTERM");
  await again.ended;

  const both = [runWaypost(args, next), runWaypost(args, next)];
  const refused = await Promise.race(both.map(async (one) => one.ended));
  expect(refused).toMatchObject({
    code: 2,
    err: expect.stringContaining("another waypost server is using it"),
  });
  const url = await Promise.race(both.map(async (one) => one.ready));
  expect(await listMessages(url)).toEqual(kept);
});
