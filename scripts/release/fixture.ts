/**
 * Writes the data of this version as a fixture, from which a test of a later version upgrades:
 *
 *   npm run release:fixture -- test/fixtures/0.1.0
 *   npm run release:fixture -- test/fixtures/0.1.0 --database-url postgres://… (an empty database)
 *
 * `waypost.db` and `waypost.db.keys` are a backup of a folder; `waypost.sql` has the statements that create a
 * database.
 * `expected.json` names what the data has.
 */
import { execFileSync, spawn } from "node:child_process";
import { once } from "node:events";
import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join, resolve } from "node:path";
import { createInterface } from "node:readline";
import { parseArgs } from "node:util";
import { fail, home } from "../../launch/modernNode.js";
import { dumpPostgres } from "./dumpPostgres.ts";

/** The token of the well-known account of `waypost dev`. */
const token = "eyJVc2VySUQiOiJkZWZhdWx0VXNlciIsIlBhc3N3b3JkIjoiZGVmYXVsdFBhc3N3b3JkIn0=";
const command = ["--disable-warning=ExperimentalWarning", join(home, "src/server/cli/main.ts")];

type Reply = Record<string, unknown>;

async function fill(url: string): Promise<Reply> {
  const send = async (
    path: string,
    headers: Record<string, string> = {},
    body = "a payload",
  ): Promise<Reply> => {
    const response = await fetch(`${url}${path}`, {
      method: "POST",
      headers: { authorization: `Bearer ${token}`, ...headers },
      body,
    });
    const text = await response.text();
    if (!response.ok) throw new Error(`${path}: ${response.status} ${text}`);
    return text === "" ? {} : (JSON.parse(text) as Reply);
  };
  const nowhere = "http://127.0.0.1:1";
  const later = { "svc-delay": "7d" };
  const json = { "content-type": "application/json" };
  const publish = async (path: string, headers: Record<string, string>): Promise<unknown> =>
    (await send(path, headers)).messageId;
  await send("/v2/queues", json, JSON.stringify({ queueName: "orders", parallelism: 2 }));
  await send("/v2/topics/team/endpoints", json, JSON.stringify({ endpoints: [{ url: `${nowhere}/a` }] }));
  return {
    delayed: await publish(`/v2/publish/${nowhere}/delayed`, { ...later, "svc-callback": `${nowhere}/done` }),
    queued: await publish(`/v2/enqueue/orders/${nowhere}/queued`, later),
    retrying: await publish(`/v2/publish/${nowhere}/retrying`, { "svc-retry-delay": "604800000" }),
    failed: await publish(`/v2/publish/${nowhere}/failed`, { "svc-retries": "0", "svc-label": "fixture" }),
    limited: await publish(`/v2/publish/${nowhere}/limited`, {
      ...later,
      ...{ "svc-flow-control-key": "k", "svc-flow-control-value": "parallelism=1" },
    }),
    deduplicated: await publish(`/v2/publish/${nowhere}/once`, { ...later, "svc-deduplication-id": "once" }),
    schedule: (await send(`/v2/schedules/${nowhere}/daily`, { "svc-cron": "0 3 * * *" })).scheduleId,
    run: (await send(`/v2/trigger/${nowhere}/flow`, later)).workflowRunId,
  };
}

/** Waits until the failed message is a dead letter. */
async function waitForDeadLetter(url: string): Promise<void> {
  for (let tries = 0; tries < 300; tries++) {
    const response = await fetch(`${url}/v2/dlq`, { headers: { authorization: `Bearer ${token}` } });
    if (((await response.json()) as { messages: unknown[] }).messages.length > 0) return;
    await new Promise((done) => setTimeout(done, 100));
  }
  throw new Error("the failed message did not become a dead letter");
}

/** Runs a server, fills its store, and stops it. Returns what the store has. */
async function makeData(store: readonly string[]): Promise<Reply> {
  const server = spawn(process.execPath, [...command, "dev", "--port", "0", ...store], {
    stdio: ["ignore", "pipe", "inherit"],
  });
  const ended = once(server, "exit");
  try {
    for await (const line of createInterface({ input: server.stdout })) {
      const url = /running at (http:\S+)/.exec(line)?.[1];
      if (url === undefined) continue;
      const made = await fill(url);
      await waitForDeadLetter(url);
      return made;
    }
    throw new Error("the server did not start");
  } finally {
    server.kill("SIGTERM");
    await ended;
  }
}

const { values, positionals } = parseArgs({
  allowPositionals: true,
  options: { "database-url": { type: "string" } },
});
const [target] = positionals;
if (target === undefined) fail("name the folder: npm run release:fixture -- test/fixtures/0.1.0");
const folder = resolve(target);
const databaseUrl = values["database-url"];
const data = mkdtempSync(join(tmpdir(), "waypost-fixture-"));
try {
  mkdirSync(folder, { recursive: true });
  const made = await makeData(["--data", data, ...(databaseUrl ? ["--database-url", databaseUrl] : [])]);
  const name = databaseUrl ? "expected.postgres.json" : "expected.json";
  if (databaseUrl) writeFileSync(join(folder, "waypost.sql"), await dumpPostgres(databaseUrl));
  else
    execFileSync(process.execPath, [
      ...command,
      ...["backup", join(folder, "waypost.db"), "--data", data, "--with-keys"],
    ]);
  writeFileSync(join(folder, name), `${JSON.stringify(made, null, 2)}\n`);
  console.log(`${folder}: ${Object.keys(made).length} kinds of data`);
} catch (error) {
  fail(error instanceof Error ? error.message : String(error));
} finally {
  rmSync(data, { recursive: true, force: true });
}
