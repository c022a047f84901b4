import { once } from "node:events";
import { createServer } from "node:http";
import { setTimeout as pause } from "node:timers/promises";
import { onTestFinished } from "vitest";

/** So many calls of `key-rate` may begin in each second. */
const rate = 5;
/** How many may be under way at once. Of what is not named here, any number. */
export const parallelism: Readonly<Record<string, number>> = { "queue-one": 1, "queue-three": 3, "key-two": 2 };
/** What is limited takes longer than it would have to, so that the limit is reached. */
const durations: Readonly<Record<string, number>> = { "queue-three": 150, "key-two": 60 };

export type Kind = { limiter: string; path: string; headers: Record<string, string>; callback?: true; target?: string };
const two = { "svc-flow-control-key": "two", "svc-flow-control-value": "parallelism=2" };

/** What is published, in turn: the path before the destination, headers, and the name of the flow under which it is counted. */
export const kinds: readonly [Kind, ...Kind[]] = [
  { limiter: "plain", path: "publish/", headers: {} },
  { limiter: "queue-one", path: "enqueue/one/", headers: {} },
  { limiter: "key-two", path: "publish/", headers: two },
  { limiter: "plain", path: "publish/", headers: { "svc-delay": "1s" } },
  // A callback holds the place in the queue as well.
  { limiter: "queue-three", path: "enqueue/three/", headers: {}, callback: true },
  {
    limiter: "key-rate",
    path: "publish/",
    headers: { "svc-flow-control-key": "rate", "svc-flow-control-value": `rate=${rate}, period=1s` },
  },
  { limiter: "queue-one", path: "enqueue/one/", headers: two },
  { limiter: "group", path: "publish/", headers: {}, target: "all" },
];

type Call = {
  limiter: string;
  alsoCounted: string | null;
  id: string;
  node: string;
  schedule: string | null;
  at: number;
  excused: boolean;
};
type AcknowledgedMessage = { limiter: string; askedAt: number; answeredAt: number };

/**
 * A destination that counts what is under way for each flow, remembers every call, and judges afterwards what the service
 * had promised. It takes a few milliseconds for each, and now and then wants one of the load again, at once.
 */
export async function startDeliveryChecker() {
  const running = new Map<string, number>();
  const peaks: Record<string, number> = {};
  const calls: Call[] = [];
  const broken: string[] = [];
  const promised = new Map<string, AcknowledgedMessage>();
  const firstAt = new Map<string, number>();
  const slow = new Map<string, number>();
  const excused = new Map<string, number>();
  const behind = new Map<string, Set<string>>();
  const server = createServer(async (incoming, response) => {
    const [, limiter = "", also = ""] = (incoming.url ?? "").split("/");
    const id = String(incoming.headers["svc-message-id"]);
    const schedule = incoming.headers["svc-schedule-id"];
    const node = String(incoming.headers["svc-region"]);
    const at = performance.now();
    const isExcused = at < (excused.get(node) ?? 0);
    const more = { node, schedule: typeof schedule === "string" ? schedule : null, at, excused: isExcused };
    const call: Call = { limiter, alsoCounted: also === "key-two" ? also : null, id, ...more };
    calls.push(call);
    if (!firstAt.has(id)) firstAt.set(id, at);
    behind.get(limiter)?.delete(id);
    const names = isExcused ? [] : [limiter, ...(call.alsoCounted ? [call.alsoCounted] : [])];
    for (const name of names) {
      const count = (running.get(name) ?? 0) + 1;
      running.set(name, count);
      if (name in parallelism) peaks[name] = Math.max(peaks[name] ?? 0, count);
      if (count > (parallelism[name] ?? Infinity)) broken.push(`${count} of ${name}: ${id} by ${node}`);
    }
    incoming.resume();
    await pause(slow.get(incoming.url ?? "") ?? Math.random() * 5 + (durations[limiter] ?? 0));
    for (const name of names) running.set(name, (running.get(name) ?? 0) - 1);
    const again = kinds.some((kind) => kind.limiter === limiter) && Math.random() < 0.03;
    response.writeHead(again ? 500 : 200, again ? { "retry-after": "0" } : {}).end();
  });
  server.listen(0, "127.0.0.1");
  await once(server, "listening");
  onTestFinished(() => void (server.closeAllConnections(), server.close()));
  const address = server.address();
  return {
    url: `http://127.0.0.1:${typeof address === "object" ? address?.port : 0}`,
    calls,
    broken,
    /** How many were under way at once, of what is limited. */
    peaks,
    /** Takes so long for this path, each time. */
    slow: (path: string, time: number): void => void slow.set(path, time),
    /**
     * Lets go what this node begins to send in the next time. It was stopped for longer than its leases, and may send what
     * it had taken before (decision 0006).
     */
    excuse: (node: string, time: number): void => void excused.set(node, performance.now() + time),
    /** The answer to a publish: from now on, all of it is to arrive. */
    acknowledged: (limiter: string, answer: unknown, askedAt: number): void => {
      for (const { messageId } of [answer].flat() as { messageId: string }[]) {
        promised.set(messageId, { limiter, askedAt, answeredAt: performance.now() });
        if (!firstAt.has(messageId)) behind.set(limiter, (behind.get(limiter) ?? new Set()).add(messageId));
      }
    },
    promised: (): number => promised.size,
    behind: (limiter: string): number => behind.get(limiter)?.size ?? 0,
    /** How much of what was acknowledged has not arrived. */
    missing: (): number => new Set(promised.keys()).difference(firstAt).size,
    /** How often a schedule fired: messages of its, each of which may have come more than once. */
    fired: (schedule: string): number => new Set(calls.filter((call) => call.schedule === schedule).map(({ id }) => id)).size,
    /** How many calls too many there were under the rate, in the worst stretch of time. */
    tooMany: (): number =>
      maxRateExcess(calls.filter(({ limiter, excused: isExcused }) => limiter === "key-rate" && !isExcused).map(({ at }) => at)),
    disorder: (): string[] => listDisorder(calls, promised),
  };
}

/** Calls arrive a while after they were counted, those of a busy node later than others. */
const maxLateness = 2_000;

/** Of any two moments: the calls between them, less those that the windows between them allow, the first and the last of which may be cut. */
function maxRateExcess(times: readonly number[]): number {
  const allowed = (time: number): number => rate * (Math.floor((time + maxLateness) / 1000) + 2);
  const excess = times.flatMap((from, first) => times.slice(first).map((until, more) => more + 1 - allowed(until - from)));
  return excess.reduce((max, one) => Math.max(max, one), -Infinity);
}

/** Calls of the queue that lets one through at a time which came too late or too early: one is finished, then the next one begins. */
function listDisorder(calls: readonly Call[], promised: ReadonlyMap<string, AcknowledgedMessage>): string[] {
  const inQueue = calls.filter(({ limiter, excused }) => limiter === "queue-one" && !excused);
  const order = inQueue.map(({ id }) => id).filter((id, at, ids) => id !== ids[at - 1]);
  const twice = order.filter((id, at) => order.indexOf(id) < at).map((id) => `${id} came again after others`);
  // Which of two was accepted first is certain when one was asked for after the other had been answered.
  const overtaken: string[] = [];
  let latest = { id: "", askedAt: -Infinity };
  for (const id of order) {
    const { askedAt = Infinity, answeredAt = Infinity } = promised.get(id) ?? {};
    if (answeredAt < latest.askedAt) overtaken.push(`${id} came after ${latest.id}`);
    if (askedAt !== Infinity && askedAt > latest.askedAt) latest = { id, askedAt };
  }
  return [...twice, ...overtaken];
}
