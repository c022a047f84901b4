// @module-tag long
import { readdirSync, readFileSync } from "node:fs";
import { onTestFinished } from "vitest";
import { expect, test } from "vitest";
import { startPostgres } from "../postgres.ts";
import { ask } from "../store/postgres/postgresDatabase.ts";
import type { Process } from "./waypost.ts";
import { developmentToken, startWaypost, temporaryFolder } from "./waypost.ts";

// A database that hangs instead of refusing: its processes are stopped, or its standby is missing.

const published = async (
  server: Process,
  token = developmentToken,
): Promise<{ status: number; retryAfter: string | null; body: string }> => {
  const headers = { authorization: `Bearer ${token}` };
  const reply = await fetch(`${server.url}/v2/publish/https://shop.example/x?svc-delay=1d`, {
    method: "POST",
    headers,
  });
  return { status: reply.status, retryAfter: reply.headers.get("retry-after"), body: await reply.text() };
};

const readiness = async (server: Process): Promise<number> =>
  (await fetch(`${server.url}/v2/health/ready`)).status;

async function until(what: () => Promise<boolean>): Promise<void> {
  while (!(await what())) await new Promise((resolve) => setTimeout(resolve, 200));
}

/** Stops a process, and then all of its children: a stopped process starts no others. Returns them. */
function freeze(pid: number): number[] {
  process.kill(pid, "SIGSTOP");
  const parents = readdirSync("/proc")
    .filter((name) => /^\d+$/.test(name))
    .map((name) => [Number(name), parentOf(name)]);
  const children = parents.filter(([, parent]) => parent === pid).map(([child = 0]) => child);
  signal(children, "SIGSTOP");
  return [pid, ...children];
}

function parentOf(pid: string): number {
  try {
    return Number(/\) \S (\d+)/.exec(readFileSync(`/proc/${pid}/stat`, "utf8"))?.[1]);
  } catch {
    return 0;
  }
}

/** Sets the standby that commits wait for. */
async function waitForStandby(url: string, name: string): Promise<void> {
  await ask(url, `alter system set synchronous_standby_names = '${name}'`);
  await ask(url, "select pg_reload_conf()");
}

const signal = (pids: readonly number[], name: NodeJS.Signals): void => {
  for (const pid of pids) process.kill(pid, name);
};

test.runIf(process.platform === "linux")(
  "while a database hangs, every request gets 503 and none is stored later",
  async () => {
    const postgres = await startPostgres();
    onTestFinished(() => postgres.stop());
    const server = await startWaypost([
      "dev",
      "--port",
      "0",
      "--data",
      temporaryFolder(),
      "--database-url",
      postgres.url,
    ]);
    expect(await published(server)).toMatchObject({ status: 200 });
    const frozen = freeze(postgres.pid());
    const thaw = (): void => signal(frozen.splice(0), "SIGCONT");
    onTestFinished(thaw);
    const unknown = Buffer.from(JSON.stringify({ UserID: "defaultUser", Password: "another" })).toString(
      "base64",
    );
    const answers = await Promise.all([
      ...Array.from({ length: 40 }, () => published(server)),
      ...Array.from({ length: 40 }, () => published(server, unknown)),
    ]);
    expect(answers.map(({ status, retryAfter }) => [status, retryAfter])).toEqual(
      answers.map(() => [503, "1"]),
    );
    expect(await readiness(server)).toBe(503);
    thaw();
    await until(async () => (await readiness(server)) === 200);
    expect(await published(server)).toMatchObject({ status: 200 });
    expect(await published(server, unknown)).toMatchObject({ status: 401 });
  },
);

test("a server is not ready while its database waits for a missing standby", async () => {
  const postgres = await startPostgres({ more: { synchronous_commit: "on" } });
  onTestFinished(() => postgres.stop());
  const server = await startWaypost([
    "dev",
    "--port",
    "0",
    "--data",
    temporaryFolder(),
    "--database-url",
    postgres.url,
  ]);
  expect(await published(server)).toMatchObject({ status: 200 });
  await waitForStandby(postgres.url, "missing");
  const waiting = published(server);
  await until(async () => (await readiness(server)) === 503);
  await waitForStandby(postgres.url, "");
  expect(await waiting).toMatchObject({ status: 200 });
  await until(async () => (await readiness(server)) === 200);
});
