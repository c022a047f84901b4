import { once } from "node:events";
import type { ServerResponse } from "node:http";
import { createServer } from "node:http";
import type { AddressInfo } from "node:net";
import type { Header } from "./exchange.ts";
import { toPairs } from "./exchange.ts";

/** One request that came to the destination. `at`: its place among all that came. */
export type Arrival = { at: number; method: string; path: string; headers: readonly Header[]; body: Buffer };

type Answer = { status: number; headers?: Record<string, string>; body?: string; after?: number };

const plain = { "content-type": "application/json" };
const workflowHeaders = {
  "svc-workflow-sdk-version": "1",
  "svc-workflow-sdk": "v1.3.2",
  "upstash-workflow-sdk-version": "1",
  "upstash-workflow-sdk": "v1.3.2",
};
const final = { "svc-nonretryable-error": "true", "upstash-nonretryable-error": "true" };

/** The responses, by the first part of the path, such as `/500/label`. `count`: earlier calls of the path. */
const answers: Record<string, (count: number) => Answer> = {
  "200": () => ({ status: 200, headers: plain, body: '{"ok":true}' }),
  "204": () => ({ status: 204 }),
  callback: () => ({ status: 200, body: "heard" }),
  "404": () => ({ status: 404, body: "nothing here" }),
  "429": (count) =>
    count > 0
      ? { status: 200, body: "now" }
      : {
          status: 429,
          headers: { "retry-after": "1" },
          body: "later",
        },
  "489": () => ({ status: 489, headers: final, body: '{"message":"never"}' }),
  "500": () => ({ status: 500, headers: { ...plain, "x-why": "broken" }, body: '{"message":"broken"}' }),
  flaky: (count) => (count > 0 ? { status: 200, body: "recovered" } : { status: 503, body: "not yet" }),
  redirect: () => ({ status: 302, headers: { location: "/200/elsewhere" }, body: "" }),
  later: () => ({ status: 202, headers: { "svc-ack": "later" } }),
  slow: () => ({ status: 200, body: "late", after: 1500 }),
  workflow: () => ({ status: 200, headers: workflowHeaders, body: "{}" }),
  "workflow-489": () => ({
    status: 489,
    headers: { ...workflowHeaders, ...final },
    body: '{"error":"Error","message":"no"}',
  }),
};

/** A destination on loopback that keeps what arrives. Paths under `/held/` wait until they are released. */
export type Destination = {
  url: string;
  arrivals: readonly Arrival[];
  /** Waits until `count` requests have arrived at the path, and returns them. */
  until(path: string, count: number): Promise<readonly Arrival[]>;
  /** Responds to the requests that wait at the path, and to all later ones. */
  release(path: string): void;
  /** From now on, the path answers as another kind does. */
  mend(path: string, kind: string): void;
  close(): void;
};

/** Starts the destination. */
export async function startDestination(): Promise<Destination> {
  const arrivals: Arrival[] = [];
  const checks = new Set<() => void>();
  const held = new Map<string, ServerResponse[]>();
  const released = new Set<string>();
  const mended = new Map<string, string>();
  const server = createServer(async (request, response) => {
    response.sendDate = false;
    const at = arrivals.length;
    const path = request.url ?? "";
    const method = request.method ?? "";
    const chunks: Buffer[] = [];
    for await (const chunk of request) chunks.push(chunk as Buffer);
    const count = arrivals.filter((other) => other.path === path).length;
    arrivals.push({ at, method, path, headers: toPairs(request.rawHeaders), body: Buffer.concat(chunks) });
    for (const check of checks) check();
    const [, given = ""] = path.split("/");
    const kind = mended.get(path) ?? given;
    if (kind === "held" && !released.has(path)) {
      held.set(path, [...(held.get(path) ?? []), response]);
      return;
    }
    const answer = answers[kind]?.(count) ?? { status: 200, body: "released" };
    const write = (): void => void response.writeHead(answer.status, answer.headers).end(answer.body);
    if (answer.after === undefined) write();
    else setTimeout(write, answer.after);
  });
  server.listen(0, "127.0.0.1");
  await once(server, "listening");
  const until = (path: string, count: number): Promise<readonly Arrival[]> =>
    new Promise((resolve, reject) => {
      const timer = setTimeout(() => {
        const came = arrivals.filter((arrival) => arrival.path === path).length;
        reject(new Error(`${path}: ${came} deliveries came instead of ${count}`));
      }, 30_000);
      const check = (): void => {
        const found = arrivals.filter((arrival) => arrival.path === path);
        if (found.length < count) return;
        checks.delete(check);
        clearTimeout(timer);
        resolve(found);
      };
      checks.add(check);
      check();
    });
  return {
    url: `http://127.0.0.1:${(server.address() as AddressInfo).port}`,
    arrivals,
    until,
    release: (path) => {
      released.add(path);
      for (const response of held.get(path) ?? []) response.writeHead(200).end("released");
    },
    mend: (path, kind) => void mended.set(path, kind),
    close: () => {
      server.closeAllConnections();
      server.close();
    },
  };
}
