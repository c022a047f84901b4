import { setTimeout as pause } from "node:timers/promises";
import { Client } from "pg";
import type { Columns } from "../../src/engine/store/catalog/tables.ts";
import { Agent, request } from "undici";
import { expect, onTestFinished } from "vitest";
import type { Kind, Start, startDeliveryChecker } from "./deliveryChecker.ts";
import { kinds, parallelism } from "./deliveryChecker.ts";
import type { Process } from "./waypost.ts";
import { readCredentials, startWaypost } from "./waypost.ts";

/** The duration of a lease on these nodes, in milliseconds. */
export const lease = 8_000;

/** A server on a shared database. Its deliveries carry its name as their region. */
export type Node = Process & { name: string };

/** Starts one `waypost start` per name, on one database. */
export async function startNodes(
  databaseUrl: string,
  names: readonly string[],
  environment: Record<string, string> = {},
): Promise<{ nodes: Node[]; token: string }> {
  const [first = "", ...others] = names;
  const one = await startNode(databaseUrl, first, environment);
  const credentials = await readCredentials("--database-url", databaseUrl);
  const [, token = ""] = /WAYPOST_TOKEN="(.*)"/.exec(credentials) ?? [];
  const rest = await Promise.all(others.map((name) => startNode(databaseUrl, name, environment)));
  return { nodes: [one, ...rest], token };
}

/** Starts a further node, or restarts one that was killed. */
export async function startNode(
  databaseUrl: string,
  name: string,
  environment: Record<string, string> = {},
): Promise<Node> {
  const preload = new URL("./shortLease.ts", import.meta.url).href;
  const args = [
    "start",
    "--port",
    "0",
    "--database-url",
    databaseUrl,
    "--egress-allow",
    "127.0.0.0/8",
    "--region",
    name,
  ];
  return { ...(await startWaypost(args, { NODE_OPTIONS: `--import=${preload}`, ...environment })), name };
}

/** Runs a statement and returns its rows. If the URL has several hosts, name the one that is meant. */
export async function ask(url: string, sql: string): Promise<Columns[]> {
  const client = new Client({ connectionString: url });
  client.on("error", () => undefined);
  await client.connect();
  try {
    const { rows } = await client.query<Columns>(sql);
    return rows;
  } finally {
    await client.end();
  }
}

/** Opens a connection that has run a statement and stays open. */
export async function holdConnection(url: string, sql: string): Promise<Client> {
  const client = new Client({ connectionString: url });
  client.on("error", () => undefined);
  await client.connect();
  await client.query(sql);
  return client;
}

/**
 * Waits until each of `count` nodes has watched the others for so long that it would miss one: see
 * docs/decisions/0051.
 */
export async function seeEachOther(url: string, count: number): Promise<void> {
  // A node does not rely on what it sees in the first 3 s. Then it must see another node for 1.5 s.
  const from = Date.now() + 4_000;
  const sql =
    "select pid, floor(extract(epoch from query_start) * 1000)::bigint as at from pg_stat_activity " +
    "where application_name = 'waypost listener' and datname = current_database() " +
    "and query like '%pg_walfile_name%'";
  const first = new Map<number, number>();
  const ready = new Set<number>();
  while (ready.size < count) {
    await pause(50);
    for (const row of await ask(url, sql)) {
      const [pid, at] = [Number(row["pid"]), Number(row["at"])];
      if (at >= from && !first.has(pid)) first.set(pid, at);
      if (at >= (first.get(pid) ?? Infinity) + 2_000) ready.add(pid);
    }
  }
}

/** Returns the number `n` that a statement returns. */
const count = async (url: string, sql: string): Promise<number> => Number((await ask(url, sql))[0]?.n);

type NodeResponse = { status: number; retryAfter: string | undefined; body: unknown };

/**
 * Returns a client that sends each request to the next of these nodes. Null: no response within `patience`
 * milliseconds.
 */
export function createNodeClient(
  token: string,
  { nodes, patience }: { nodes: () => readonly Node[]; patience: number },
) {
  const agent = new Agent({ connections: 16 });
  onTestFinished(() => agent.destroy());
  let turn = 0;
  return async (
    method: "GET" | "POST",
    path: string,
    { headers = {}, body = "" }: { headers?: Record<string, string>; body?: string } = {},
  ): Promise<NodeResponse | null> => {
    const some = nodes();
    const url = some[turn++ % some.length]?.url ?? "";
    try {
      const options = {
        method,
        headers: { authorization: `Bearer ${token}`, ...headers },
        body: method === "GET" ? null : body,
      };
      const answer = await request(`${url}/v2/${path}`, {
        ...options,
        dispatcher: agent,
        signal: AbortSignal.timeout(patience),
      });
      const retryAfter = answer.headers["retry-after"];
      return { status: answer.statusCode, retryAfter: String(retryAfter), body: await answer.body.json() };
    } catch {
      return null;
    }
  };
}

type Ask = ReturnType<typeof createNodeClient>;
type DeliveryChecker = Awaited<ReturnType<typeof startDeliveryChecker>>;

/**
 * The maximum number of acknowledged messages of a kind that may be missing before the kind is paused.
 * Messages with a rate are waited for at the end.
 */
const maxBehind = (limiter: string): number => (limiter === "key-rate" ? 8 : 20);
const publishers = 6;

/** How long a client waits for a response, in milliseconds, before it retries. */
export const client = { patience: 2_000 };
/** How long a request that sets up the test waits for its response, in milliseconds. */
export const builder = { patience: 300_000 };

/**
 * Creates what the messages need: a queue with parallelism 3, a URL group, a schedule without a queue and one
 * with.
 */
export async function createObjects(ask: Ask, checker: DeliveryChecker): Promise<void> {
  const endpoints = ["a", "b"].map((name) => ({ name, url: `${checker.url}/group/${name}` }));
  const answers = [
    await ask("POST", "queues", { body: JSON.stringify({ queueName: "three", parallelism: 3 }) }),
    await ask("POST", "topics/all/endpoints", { body: JSON.stringify({ endpoints }) }),
    await ask("POST", `schedules/${checker.url}/tick`, {
      headers: { "svc-cron": "0 0 1 1 *", "svc-schedule-id": "tick" },
    }),
    await ask("POST", `schedules/${checker.url}/queue-one`, {
      headers: { "svc-cron": "0 0 1 1 *", "svc-schedule-id": "queued", "svc-queue-name": "one" },
    }),
  ];
  expect(answers.map((answer) => answer?.status)).toEqual([200, 200, 200, 200]);
}

/** Publishes messages of all kinds until stopped, and reports to the checker what was acknowledged. */
export function startLoad(ask: Ask, checker: DeliveryChecker) {
  const refused: NodeResponse[] = [];
  let going = true;
  let number = 0;
  const publishOne = async (): Promise<void> => {
    const kind = kinds[number % kinds.length] ?? kinds[0];
    if (checker.behind(kind.limiter) <= maxBehind(kind.limiter)) return publish(kind, number++);
    number++;
    await pause(2);
  };
  const publish = async ({ limiter, path, headers, callback, target }: Kind, name: number): Promise<void> => {
    const also = "svc-flow-control-key" in headers && limiter === "queue-one" ? "key-two" : "none";
    const to = target ?? `${checker.url}/${limiter}/${also}/${name}`;
    const more: Record<string, string> = callback ? { "svc-callback": `${checker.url}/callback` } : {};
    const askedAt = performance.now();
    const answer = await ask("POST", `${path}${to}`, {
      headers: { ...headers, ...more, "svc-retries": "1000" },
      body: String(name),
    });
    if (answer?.status === 200) checker.acknowledged(limiter, answer.body, askedAt);
    else if (answer) refused.push(answer);
    // Clients that were refused, or got no response, retry after a while.
    if (answer?.status !== 200) await pause(50);
  };
  // First many limited messages at once, so that the limits are reached even on a slow machine.
  const limited = kinds.flatMap((kind) =>
    Array.from(
      { length: kind.limiter === "key-rate" ? 50 : kind.limiter in parallelism ? 8 : 0 },
      () => kind,
    ),
  );
  const burst = limited.map((kind) => publish(kind, number++));
  const publisher = async (): Promise<void> => {
    await Promise.all(burst);
    while (going) await publishOne();
  };
  const ended = Promise.all(Array.from({ length: publishers }, publisher));
  return {
    /** Responses other than 200. */
    refused,
    /** Stops as soon as each limit was reached once. */
    stop: async (): Promise<void> => {
      while (!checker.hasReachedLimits()) await pause(20);
      going = false;
      await ended;
    },
  };
}

/** Makes both schedules due this many times, each time after they have fired. */
export async function fire(databaseUrl: string, times: number): Promise<void> {
  for (let time = 0; time < times; time++) {
    await ask(
      databaseUrl,
      `update schedules set due_at = floor(extract(epoch from clock_timestamp()) * 1000)::bigint - 1`,
    );
    await ask(databaseUrl, `select pg_notify('waypost_due', 'test 1')`);
    await waitForZero(
      databaseUrl,
      `select count(*) as n from schedules where due_at < extract(epoch from clock_timestamp()) * 1000`,
    );
  }
}

/** Returns all deliveries with a flow-control key that Waypost has counted. */
export async function readStarts(ask: Ask, key: string): Promise<Start[]> {
  type Page = { events: { messageId: string; time: number }[]; cursor?: string };
  const starts: Start[] = [];
  for (let cursor: string | undefined = ""; cursor !== undefined;) {
    const more = cursor === "" ? "" : `&cursor=${cursor}`;
    const answer = await ask("GET", `logs?flowControlKey=${key}&state=ACTIVE&count=1000${more}`);
    expect(answer?.status).toBe(200);
    const page = answer?.body as Page;
    starts.push(...page.events.map(({ messageId, time }) => ({ id: messageId, at: time })));
    ({ cursor } = page);
  }
  return starts;
}

async function waitForZero(url: string, sql: string): Promise<void> {
  while ((await count(url, sql)) > 0) await pause(20);
}

/** Waits until all acknowledged messages have arrived and the database has no rows that should be gone. */
export async function settled(databaseUrl: string, checker: DeliveryChecker): Promise<void> {
  while (checker.missing() > 0) await pause(20);
  await waitForZero(databaseUrl, "select count(*) as n from messages");
  await waitForZero(databaseUrl, "select count(*) as n from limiters where running <> 0 or waiting <> 0");
  expect(await ask(databaseUrl, "select * from queue_slots")).toEqual([]);
  expect(await ask(databaseUrl, "select message_id, detail from dead_letters")).toEqual([]);
}
