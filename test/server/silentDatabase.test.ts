// @module-tag long
import { readdirSync, readFileSync } from "node:fs";
import { onTestFinished } from "vitest";
import { expect, test } from "vitest";
import { startPostgres } from "../postgres.ts";
import { waitForStandby } from "../engine/store/postgres/standby.ts";
import type { Process } from "./waypost.ts";
import { developmentToken, startDestination, startWaypost, temporaryFolder } from "./waypost.ts";

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

/** The longest time from the last byte to the response, in milliseconds, by the clock of the server. */
const longestAnswer = 15_000;

/** Returns how long each request to publish took, as the log of the server has it, in milliseconds. */
const readTimes = (log: string): number[] =>
  log.split("\n").flatMap((text) => {
    if (!text.includes('"request"') || !text.includes("/v2/publish/")) return [];
    const { ms } = JSON.parse(text) as { ms: number };
    return [ms];
  });

test("publishes without a standby for 60 s are answered in time, and repeats are stored once", async () => {
  const postgres = await startPostgres({ more: { synchronous_commit: "on" } });
  onTestFinished(() => postgres.stop());
  const destination = await startDestination();
  const folder = temporaryFolder();
  const where = ["--port", "0", "--data", folder, "--database-url", postgres.url];
  const server = await startWaypost(["dev", ...where, "--log-format", "json"]);
  const publish = async (order: number) => {
    const reply = await fetch(`${server.url}/v2/publish/${destination.url}/${order}`, {
      method: "POST",
      headers: { authorization: `Bearer ${developmentToken}`, "svc-deduplication-id": `order-${order}` },
    });
    const body: { code?: string } = JSON.parse(await reply.text());
    return { status: reply.status, code: body.code };
  };
  expect(await publish(0)).toMatchObject({ status: 200 });
  await waitForStandby(postgres.url, "missing");
  const pending: ReturnType<typeof publish>[] = [];
  for (let order = 1; order <= 120; order++) {
    pending.push(publish(order));
    await new Promise((resolve) => setTimeout(resolve, 500));
  }
  const answers = await Promise.all(pending);
  expect(new Set(answers.map(({ status }) => status))).toEqual(new Set([503]));
  // Which transaction hangs first is a race. If it is one of the server's own, no publish has reached its
  // commit.
  for (const { code } of answers) expect(["outcome-unknown", "unavailable"]).toContain(code);
  await waitForStandby(postgres.url, "");
  await until(async () => (await readiness(server)) === 200);
  for (const [index, { code }] of answers.entries()) {
    const { status } = await publish(index + 1);
    // A repeat of a stored message is accepted without a second message (202).
    expect(code === "unavailable" ? [200] : [200, 202], `order ${index + 1}: ${code}`).toContain(status);
  }
  const paths = (): Set<string> => new Set(destination.arrivals.map(({ path }) => path));
  await expect.poll(() => paths().size, { timeout: 120_000 }).toBe(121);
  const ids = destination.arrivals.map(
    ({ headers }) => headers["svc-message-id"] ?? headers["upstash-message-id"],
  );
  expect(new Set(ids).size, "messages").toBe(121);
  server.kill("SIGTERM");
  const times = readTimes((await server.ended).err);
  expect(times).toHaveLength(120);
  expect(Math.max(...times)).toBeLessThanOrEqual(longestAnswer);
});
