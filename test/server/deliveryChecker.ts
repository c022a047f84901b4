import { once } from "node:events";
import { createServer } from "node:http";
import { setTimeout as pause } from "node:timers/promises";
import { onTestFinished } from "vitest";

/** How many calls of `key-rate` may start per second. */
const rate = 5;
/** How many calls may be in flight at once. Others are not limited. */
export const parallelism: Readonly<Record<string, number>> = {
  "queue-one": 1,
  "queue-three": 3,
  "key-two": 2,
};
/** Milliseconds per call: long enough for the limits to be reached. */
const durations: Readonly<Record<string, number>> = { "queue-three": 150, "key-two": 60 };

/** A kind of message: how it is published, and the limiter that counts its deliveries. */
export type Kind = {
  limiter: string;
  path: string;
  headers: Record<string, string>;
  callback?: true;
  target?: string;
};
const two = { "svc-flow-control-key": "two", "svc-flow-control-value": "parallelism=2" };

/**
 * The kinds of messages, published in turn: the path before the destination, headers, and the name under
 * which calls are counted.
 */
export const kinds: readonly [Kind, ...Kind[]] = [
  { limiter: "plain", path: "publish/", headers: {} },
  { limiter: "queue-one", path: "enqueue/one/", headers: {} },
  { limiter: "key-two", path: "publish/", headers: two },
  { limiter: "plain", path: "publish/", headers: { "svc-delay": "1s" } },
  // A callback also holds the queue slot.
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
/** A delivery that Waypost has counted: its message, and when it was counted. */
export type Start = { id: string; at: number };
type AcknowledgedMessage = { limiter: string; askedAt: number; answeredAt: number };

/**
 * Starts a destination that counts concurrent calls by name, records every call, and checks afterwards what
 * Waypost promised. It takes a few milliseconds per call, and fails some messages so that they are retried at
 * once.
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
    /** The peaks of concurrent calls, for limited names. */
    peaks,
    hasReachedLimits: (): boolean =>
      Object.entries(parallelism).every(([name, limit]) => (peaks[name] ?? 0) >= limit),
    /** Sets how long each call of this path takes. */
    slow: (path: string, time: number): void => void slow.set(path, time),
    /**
     * Excuses the calls of this node for some time. It was stopped for longer than its leases, and may send
     * what it had claimed before (decision 0006).
     */
    excuse: (node: string, time: number): void => void excused.set(node, performance.now() + time),
    /** Records the response to a publish: from now on its messages must arrive. */
    acknowledged: (limiter: string, answer: unknown, askedAt: number): void => {
      for (const { messageId } of [answer].flat() as { messageId: string }[]) {
        promised.set(messageId, { limiter, askedAt, answeredAt: performance.now() });
        if (!firstAt.has(messageId)) behind.set(limiter, (behind.get(limiter) ?? new Set()).add(messageId));
      }
    },
    promised: (): number => promised.size,
    behind: (limiter: string): number => behind.get(limiter)?.size ?? 0,
    /** The number of acknowledged messages that have not arrived. */
    missing: (): number => new Set(promised.keys()).difference(firstAt).size,
    /** How often a schedule has fired. Its messages may have arrived more than once. */
    fired: (schedule: string): number =>
      new Set(calls.filter((call) => call.schedule === schedule).map(({ id }) => id)).size,
    /**
     * Returns by how much the rate was exceeded in the worst interval, and the messages with more calls than
     * starts. `starts` are the deliveries of `key-rate` that Waypost has counted.
     */
    compareRate: (starts: readonly Start[]): { excess: number; uncounted: string[] } => ({
      excess: maxRateExcess(starts.map(({ at }) => at)),
      uncounted: listUncounted(
        calls.filter(({ limiter }) => limiter === "key-rate").map(({ id }) => id),
        starts.map(({ id }) => id),
      ),
    }),
    disorder: (): string[] => listDisorder(calls, promised),
  };
}

/**
 * Nodes know the clock of the database to half a round trip. Their clocks therefore differ by less than this,
 * in milliseconds.
 */
const maxSkew = 200;

/**
 * Returns the highest excess of starts between any two moments over what the windows between them allow. The
 * first and the last window may be partial.
 */
function maxRateExcess(starts: readonly number[]): number {
  const times = starts.toSorted((a, b) => a - b);
  const allowed = (time: number): number => rate * (Math.floor((time + maxSkew) / 1000) + 2);
  const excess = times.flatMap((from, first) =>
    times.slice(first).map((until, more) => more + 1 - allowed(until - from)),
  );
  return excess.reduce((max, one) => Math.max(max, one), -Infinity);
}

/** Returns the ids of the messages with more calls than starts. */
function listUncounted(called: readonly string[], started: readonly string[]): string[] {
  const left = new Map<string, number>();
  for (const id of started) left.set(id, (left.get(id) ?? 0) + 1);
  for (const id of called) left.set(id, (left.get(id) ?? 0) - 1);
  return [...left].flatMap(([id, count]) => (count < 0 ? [id] : []));
}

/**
 * Returns the calls of the queue with parallelism 1 that came too late or too early: a message must be
 * finished before the next one begins.
 */
function listDisorder(calls: readonly Call[], promised: ReadonlyMap<string, AcknowledgedMessage>): string[] {
  const inQueue = calls.filter(({ limiter, excused }) => limiter === "queue-one" && !excused);
  const order = inQueue.map(({ id }) => id).filter((id, at, ids) => id !== ids[at - 1]);
  const twice = order.filter((id, at) => order.indexOf(id) < at).map((id) => `${id} came again after others`);
  // The order of acceptance is certain only if one publish was sent after the response to the other.
  const overtaken: string[] = [];
  let latest = { id: "", askedAt: -Infinity };
  for (const id of order) {
    const { askedAt = Infinity, answeredAt = Infinity } = promised.get(id) ?? {};
    if (answeredAt < latest.askedAt) overtaken.push(`${id} came after ${latest.id}`);
    if (askedAt !== Infinity && askedAt > latest.askedAt) latest = { id, askedAt };
  }
  return [...twice, ...overtaken];
}
