// @module-tag long
import { copyFileSync, mkdirSync } from "node:fs";
import { join } from "node:path";
import { setTimeout as pause } from "node:timers/promises";
import { beforeEach, expect, test } from "vitest";
import { freshDatabase } from "../../postgres.ts";
import { makeNextVersion } from "../../release/nextVersion.ts";
import type { Process } from "../../server/waypost.ts";
import {
  developmentToken,
  runWaypost,
  startDestination,
  startWaypost,
  temporaryFolder,
} from "../../server/waypost.ts";
import type { UserDatabase } from "./userDatabase.ts";
import { connectTo, openUserDatabase } from "./userDatabase.ts";

// A row is in flight while it has been published and is not deleted yet. The server ends in this moment.

/** More rows than a round has, so some of them wait while others are in flight. */
const rows = 600;
const rowsInFlight = 500;
const patient = { interval: 100 };

let user: UserDatabase;
let shop: Awaited<ReturnType<typeof startShop>>;
beforeEach(async () => {
  user = await openUserDatabase();
  shop = await startShop();
});

/** A destination that knows which messages each row has become. */
async function startShop() {
  const messages = new Map<string, Set<string>>();
  const destination = await startDestination(({ headers, body }) => {
    const row = body.toString();
    messages.set(row, (messages.get(row) ?? new Set()).add(String(headers["svc-message-id"])));
    return { status: 200 };
  });
  return { url: destination.url, messages };
}

const start = (data: string, more: readonly string[] = [], environment: NodeJS.ProcessEnv = {}) =>
  startWaypost(["dev", "--port", "0", "--data", data, ...more], environment);

/** Sends a request, such as "GET /v2/messages". */
async function ask(server: Process, request: string, body?: unknown) {
  const [method = "", path = ""] = request.split(" ");
  const response = await fetch(`${server.url}${path}`, {
    method,
    headers: { Authorization: `Bearer ${developmentToken}` },
    ...(body !== undefined && { body: JSON.stringify(body) }),
  });
  return (await response.json()) as Record<string, unknown>;
}

const addOutbox = (server: Process) =>
  ask(server, "PUT /v2/outboxes/shop", { databaseUrl: user.url, token: developmentToken });

const countRows = async (): Promise<number> =>
  Number((await user.sql.query("select count(*) from waypost.outbox")).rows[0].count);

const publish = (name: string, settings = "{}") =>
  user.sql.query("select waypost.publish($1, $2::text, $3)", [shop.url, name, settings]);

/**
 * Publishes rows whose names begin with `name`, and lets the server take them, but not delete them. Returns
 * a function that allows the deletion.
 */
async function bringInFlight(name: string, count = rows): Promise<() => Promise<unknown>> {
  const before = shop.messages.size;
  const lock = await connectTo(user.url);
  await user.sql.query("begin");
  for (let at = 0; at < count; at++) await publish(`${name} ${at}`);
  await lock.query("begin");
  // It is granted in the moment of the commit, and the relay may then lock rows and not delete them.
  const granted = lock.query("lock table waypost.outbox in share mode");
  await pause(200);
  await user.sql.query("commit");
  await granted;
  const first = Math.min(count, rowsInFlight);
  await expect.poll(() => shop.messages.size - before, patient).toBeGreaterThanOrEqual(first);
  expect(await countRows()).toBe(count);
  return () => lock.query("rollback");
}

/** Ends a server, and its connections, before they delete the rows. */
async function endBeforeDeletion(server: Process): Promise<void> {
  await end(server, "SIGKILL");
  await user.sql.query(
    "select pg_terminate_backend(pid) from pg_stat_activity where application_name = 'waypost outbox'",
  );
}

/** Expects that each row of this name was published, exactly once, and that none is left. */
async function expectOnce(name: string, count = rows): Promise<void> {
  await expect.poll(countRows, patient).toBe(0);
  const names = Array.from({ length: count }, (_, at) => `${name} ${at}`);
  await expect.poll(() => names.filter((one) => !shop.messages.has(one)), patient).toEqual([]);
  expect(names.filter((one) => shop.messages.get(one)?.size !== 1)).toEqual([]);
}

async function end(server: Process, signal: "SIGTERM" | "SIGKILL"): Promise<void> {
  server.kill(signal);
  await server.ended;
}

test("a move to PostgreSQL and back publishes each row once", async () => {
  const data = temporaryFolder();
  const first = await start(data);
  await addOutbox(first);
  const release = await bringInFlight("there");
  await end(first, "SIGTERM");
  const databaseUrl = await freshDatabase();
  const move = ["migrate-store", "--from", `sqlite:${data}`, "--to", databaseUrl];
  expect(await runWaypost(move).ended).toMatchObject({ code: 0 });
  const keys = { WAYPOST_KEYS_FILE: join(data, "keys") };
  const second = await start(temporaryFolder(), ["--database-url", databaseUrl], keys);
  await release();
  await expectOnce("there");

  const releaseBack = await bringInFlight("back");
  await end(second, "SIGTERM");
  const back = temporaryFolder();
  copyFileSync(join(data, "keys"), join(back, "keys"));
  const moveBack = ["migrate-store", "--from", databaseUrl, "--to", `sqlite:${back}`];
  expect(await runWaypost(moveBack).ended).toMatchObject({ code: 0 });
  const third = await start(back);
  await releaseBack();
  await expectOnce("back");
  expect(await ask(third, "GET /v2/outboxes/shop")).toMatchObject({ taken: 2 * rows });
});

test("an upgrade publishes each row once", async () => {
  const data = temporaryFolder();
  const first = await start(data);
  await addOutbox(first);
  const release = await bringInFlight("row");
  await end(first, "SIGKILL");
  const next = makeNextVersion({
    replaces: "create table accounts (",
    by: "create table drafts (id text primary key);\ncreate table accounts (",
    sql: "create table drafts (id text primary key);",
    allowsOlder: false,
  });
  await start(data, [], { TEST_SOURCES: next });
  await release();
  await expectOnce("row");
});

test("a server on hold takes no row, and publishes each once after the hold", async () => {
  const data = temporaryFolder();
  const first = await start(data);
  await addOutbox(first);
  const release = await bringInFlight("row");
  await endBeforeDeletion(first);
  await release();
  const held = await start(data, ["--hold"]);
  await pause(3_000);
  expect(await countRows()).toBe(rows);
  expect(await ask(held, "GET /v2/health")).toMatchObject({ held: true });
  expect(shop.messages.size).toBe(rowsInFlight);
  expect(await runWaypost(["unhold", "--data", data]).ended).toMatchObject({ code: 0 });
  await expectOnce("row");
});

test("a restored server publishes rows in flight at the backup once, and lacks later ones", async () => {
  const data = temporaryFolder();
  const folder = temporaryFolder();
  const restore = async (name: string): Promise<string> => {
    const restored = join(folder, `${name}-data`);
    const file = join(folder, name);
    mkdirSync(restored);
    copyFileSync(join(data, "keys"), join(restored, "keys"));
    expect(await runWaypost(["restore", file, "--data", restored]).ended).toMatchObject({ code: 0 });
    return restored;
  };
  const backUp = async (name: string, of: string) =>
    expect(await runWaypost(["backup", join(folder, name), "--data", of]).ended).toMatchObject({ code: 0 });

  const first = await start(data);
  await addOutbox(first);
  const release = await bringInFlight("row");
  await backUp("in-flight", data);
  await endBeforeDeletion(first);
  await release();
  const second = await restore("in-flight");
  const restored = await start(second);
  await expectOnce("row");

  // Taken after the backup: deleted in the database of the application, and unknown to the restored server.
  await backUp("earlier", second);
  await publish("sent");
  await publish("due later", '{"Svc-Delay": "1h", "Svc-Label": "later"}');
  await expect.poll(countRows, patient).toBe(0);
  await expect.poll(() => shop.messages.get("sent")?.size, patient).toBe(1);
  // Published after the backup, and not deleted before the end of the server.
  const releaseLast = await bringInFlight("again", 1);
  const listLater = (server: Process) => ask(server, "GET /v2/messages?label=later");
  expect((await listLater(restored))["messages"]).toHaveLength(1);
  await endBeforeDeletion(restored);
  await releaseLast();
  const last = await start(await restore("earlier"));
  await expect.poll(countRows, patient).toBe(0);
  await expect.poll(() => shop.messages.get("again 0")?.size, patient).toBe(2);
  expect((await listLater(last))["messages"]).toEqual([]);
  expect(shop.messages.get("sent")?.size).toBe(1);
});
