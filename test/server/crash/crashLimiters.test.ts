// @module-tag long
import { once } from "node:events";
import { createServer } from "node:http";
import { join } from "node:path";
import { DatabaseSync } from "node:sqlite";
import { setTimeout as pause } from "node:timers/promises";
import { Agent, request } from "undici";
import { expect, onTestFinished, test } from "vitest";
import { developmentToken, startWaypost, temporaryFolder } from "../waypost.ts";

const kills = 3;
const publishers = 8;
/**
 * The number of messages that each life of the server gets, and after how many acknowledged ones it may be
 * killed.
 */
const portion = 140;
const part = 90;
const authorization = `Bearer ${developmentToken}`;

/** How many calls may be in flight at once. Others are not limited. */
const parallelism: Readonly<Record<string, number>> = { "queue-one": 1, "queue-three": 3, "key-two": 2 };
/** How many calls of `key-rate` may start per second. */
const rate = 20;

/**
 * The kinds of messages, published in turn: the path before the destination, headers, and the name under
 * which calls are counted. A callback also holds the queue slot.
 */
const kinds = [
  { flow: "queue-one", path: "enqueue/one/", headers: {} },
  { flow: "queue-three", path: "enqueue/three/", headers: { "svc-callback": "callback" } },
  {
    flow: "key-two",
    path: "publish/",
    headers: { "svc-flow-control-key": "two", "svc-flow-control-value": "parallelism=2" },
  },
  {
    flow: "key-rate",
    path: "publish/",
    headers: { "svc-flow-control-key": "rate", "svc-flow-control-value": `rate=${rate}, period=1s` },
  },
  { flow: "group", path: "publish/", headers: {} },
  {
    flow: "queue-one",
    path: "enqueue/one/",
    headers: { "svc-flow-control-key": "two", "svc-flow-control-value": "parallelism=2" },
  },
] as const;

type Call = { flow: string; id: string; life: number; also: string | null };

/**
 * Counts concurrent calls by name, and records violations of a limit. Calls that a kill interrupted are not
 * counted.
 */
async function startCounting(lifeNow: () => number) {
  const running = new Map<string, number>();
  const calls: Call[] = [];
  const broken: string[] = [];
  const server = createServer(async (incoming, response) => {
    const [, flow = "", also = ""] = (incoming.url ?? "").split("/");
    const call = {
      flow,
      id: String(incoming.headers["svc-message-id"]),
      life: lifeNow(),
      also: also === "two" ? "key-two" : null,
    };
    calls.push(call);
    const names = [flow, ...(call.also ? [call.also] : [])].map((name) => ({
      name,
      counter: `${name} in life ${call.life}`,
    }));
    for (const { name, counter } of names) {
      const count = (running.get(counter) ?? 0) + 1;
      running.set(counter, count);
      if (count > (parallelism[name] ?? Infinity)) broken.push(`${count} of ${counter}: ${call.id}`);
    }
    incoming.resume();
    await pause(Math.random() * 10);
    for (const { counter } of names) running.set(counter, (running.get(counter) ?? 0) - 1);
    // Some messages are retried at once.
    const again = Math.random() < 0.05;
    response.writeHead(again ? 500 : 200, again ? { "retry-after": "0" } : {}).end();
  });
  server.listen(0, "127.0.0.1");
  await once(server, "listening");
  onTestFinished(() => void (server.closeAllConnections(), server.close()));
  const address = server.address();
  return { url: `http://127.0.0.1:${typeof address === "object" ? address?.port : 0}`, calls, broken };
}

test("queues, keys, groups and schedules keep their promises although the server is killed", async () => {
  const data = temporaryFolder();
  let life = 0;
  const destination = await startCounting(() => life);
  const agent = new Agent({ connections: publishers });
  onTestFinished(() => agent.destroy());
  const start = () => startWaypost(["dev", "--port", "0", "--data", data]);
  let server = await start();
  const ask = async (
    method: "GET" | "POST",
    path: string,
    more: { headers?: Record<string, string>; body?: string } = {},
  ) => {
    const headers = { authorization, ...more.headers };
    const answer = await request(`${server.url}/v2/${path}`, {
      method,
      headers,
      body: more.body ?? null,
      dispatcher: agent,
    });
    const body: unknown = await answer.body.json();
    if (answer.statusCode !== 200) throw new Error(`${path}: ${answer.statusCode} ${JSON.stringify(body)}`);
    return body;
  };
  await ask("POST", "queues", { body: JSON.stringify({ queueName: "three", parallelism: 3 }) });
  const endpoints = ["a", "b", "c"].map((name) => ({ name, url: `${destination.url}/group/${name}` }));
  await ask("POST", "topics/all/endpoints", { body: JSON.stringify({ endpoints }) });
  const began = Date.now();
  for (const id of ["plain", "queued"]) {
    const queue: Record<string, string> = id === "queued" ? { "svc-queue-name": "one" } : {};
    const headers = { "svc-cron": "* * * * *", "svc-schedule-id": id, ...queue };
    await ask("POST", `schedules/${destination.url}/${id === "queued" ? "queue-one" : "plain"}`, {
      headers,
    });
  }

  const acknowledged = new Set<string>();
  let count = 0;
  const publishSome = async (): Promise<void> => {
    for (const end = count + portion; count < end;) {
      const number = count++;
      const { flow, path, headers } = kinds[number % kinds.length] ?? kinds[0];
      const callback: Record<string, string> =
        "svc-callback" in headers ? { "svc-callback": `${destination.url}/callback` } : {};
      const also = flow === "queue-one" && "svc-flow-control-key" in headers ? "two" : "none";
      const target = flow === "group" ? "all" : `${destination.url}/${flow}/${also}/${number}`;
      const answer = await ask("POST", `${path}${target}`, {
        headers: { ...headers, ...callback, "svc-retries": "1000" },
      }).catch(() => null);
      for (const one of Array.isArray(answer) ? answer : answer ? [answer] : [])
        acknowledged.add(one.messageId);
      // The server has been killed; the rest is for the next one.
      if (!answer) return;
    }
  };
  for (let kill = 0; kill < kills; kill++) {
    const published = Promise.all(Array.from({ length: publishers }, publishSome));
    const enough = acknowledged.size + part;
    while (acknowledged.size < enough) await pause(5);
    await pause(Math.random() * 300);
    server.kill("SIGKILL");
    await Promise.all([server.ended, published]);
    makeSchedulesDue(data);
    life++;
    server = await start();
  }
  const flowsAtWork = async (): Promise<number> => {
    const queues = (await ask("GET", "queues")) as { lag: number }[];
    const keys = (await ask("GET", "flowControl")) as { waitListSize: number; parallelismCount: number }[];
    return [
      ...queues.map(({ lag }) => lag),
      ...keys.map((key) => key.waitListSize + key.parallelismCount),
    ].reduce((a, b) => a + b, 0);
  };
  const arrived = (): Set<string> => new Set(destination.calls.map(({ id }) => id));
  while (acknowledged.difference(arrived()).size > 0 || (await flowsAtWork()) > 0) await pause(20);
  const took = Date.now() - began;
  server.kill("SIGTERM");
  expect((await server.ended).code).toBe(0);
  const endedAt = Date.now();

  expect(destination.broken).toEqual([]);
  expect(acknowledged.size).toBeGreaterThanOrEqual(kills * part);
  const begunUnderRate = destination.calls.filter(({ flow }) => flow === "key-rate").length;
  expect(begunUnderRate).toBeLessThanOrEqual(rate * (Math.floor(took / 1000) + 2));
  // A message is sent until it is finished, then the next: a repeated message precedes all later ones.
  const inQueue = destination.calls.filter(({ flow }) => flow === "queue-one").map(({ id }) => id);
  expect(inQueue.filter((id, at) => id < (inQueue[at - 1] ?? ""))).toEqual([]);
  const minutes = Math.floor(endedAt / 60_000) - Math.floor(began / 60_000);
  const fired = new Set(destination.calls.filter(({ flow }) => flow === "plain").map(({ id }) => id)).size;
  expect(fired).toBeGreaterThanOrEqual(1);
  expect(fired).toBeLessThanOrEqual(kills + minutes);
  expect(leftIn(data)).toEqual({ messages: [], slots: [], lines: [], dead: [], flows: [] });
});

/** Makes the schedules due, while no server runs. */
function makeSchedulesDue(data: string): void {
  const database = new DatabaseSync(join(data, "waypost.db"));
  // Without checksums, which would not match the new times.
  database.exec(`update schedules set due_at = ${Date.now() - 1000}, checksum = null`);
  database.close();
}

/** Returns the rows that must not exist at the end. */
function leftIn(data: string): Record<string, unknown[]> {
  const database = new DatabaseSync(join(data, "waypost.db"));
  const rows = (sql: string): unknown[] => database.prepare(sql).all();
  const left = {
    messages: rows("select * from messages"),
    slots: rows("select * from queue_slots"),
    // The waitlist of a host may exist until the next look at it; no message is in it.
    lines: rows("select * from messages where waitlist is not null"),
    dead: rows("select id, detail from dead_letters"),
    flows: rows("select id, running, waiting from limiters where running <> 0 or waiting <> 0"),
  };
  database.close();
  return left;
}
