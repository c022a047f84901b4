import { beforeEach, describe, expect, test } from "vitest";
import { testTime, createTestServer } from "../../testServer.ts";
import type { TestServer } from "../../testServer.ts";

let server: TestServer;
beforeEach(async () => {
  server = await createTestServer();
});

const limits = (key: string, value: string) => ({
  "svc-flow-control-key": key,
  "svc-flow-control-value": value,
});
const ok = { status: 200 };

async function post(path: string, headers: Record<string, string> = {}): Promise<string> {
  const { status, body } = await server.ask("POST", path, { headers });
  expect(status, JSON.stringify(body)).toBe(200);
  return String(body.messageId);
}
const publish = (headers: Record<string, string> = {}, host = "e.example") =>
  post(`/v2/publish/https://${host}/x`, headers);
const enqueue = (headers: Record<string, string> = {}) => post("/v2/enqueue/q/https://e.example/x", headers);
const command = async (path: string): Promise<void> =>
  expect((await server.ask("POST", path)).status).toBe(200);
const claim = () => server.store.execute("claim", { limit: 100 });
const waitingOn = async (id: string) => (await server.ask("GET", `/v2/messages/${id}`)).body.waitingOn;
const setFreeCapacity = (free: number): void =>
  server.store.attach({
    readCapacity: () => ({
      free,
      perHost: free,
      backlog: false,
      runningByLane: new Map(),
      bytes: { free: 2 ** 30, perBatch: 2 ** 25, byLane: {} },
    }),
    deliver: (delivery) => void server.deliveries.push(delivery),
    abort: () => undefined,
    renewLeases: () => undefined,
    settled: () => undefined,
    fault: (what) => {
      throw new Error(what);
    },
  });

const sending = {
  reason: "sending",
  text: "being sent by node nod_1 since 2027-01-15T08:00:00.000Z; it times out at 2027-01-15T08:15:00.000Z",
  attempt: 0,
  node: "nod_1",
  since: testTime,
  until: testTime + 900_000,
};

describe("a message waits", () => {
  test("until it is due, and then for a node", async () => {
    const id = await publish({ "svc-delay": "90s" });
    expect(await waitingOn(id)).toEqual([
      { reason: "not-due", text: "due at 2027-01-15T08:01:30.000Z", until: testTime + 90_000 },
    ]);
    server.clock.now += 91_000;
    expect(await waitingOn(id)).toEqual([
      {
        reason: "due",
        text: "due since 2027-01-15T08:01:30.000Z; the next node that checks claims it",
        since: testTime + 90_000,
      },
    ]);
    await claim();
    expect(await waitingOn(id)).toEqual([
      {
        reason: "sending",
        text:
          "being sent by node nod_1 since 2027-01-15T08:01:31.000Z; it times out at " +
          "2027-01-15T08:16:31.000Z",
        attempt: 0,
        node: "nod_1",
        since: testTime + 91_000,
        until: testTime + 991_000,
      },
    ]);
  });

  test("for the response, and for nothing once it is finished", async () => {
    const id = await publish();
    expect(await waitingOn(id)).toEqual([sending]);
    server.clock.now += 30_001;
    expect(await waitingOn(id)).toEqual([
      {
        ...sending,
        reason: "lease-over",
        until: testTime + 30_000,
        text:
          "node nod_1 has been sending it since 2027-01-15T08:00:00.000Z and has not reported; " +
          "its lease expired at 2027-01-15T08:00:30.000Z, so it is sent again",
      },
    ]);
    await server.settle(server.delivery(), ok);
    const { status, body } = await server.ask("GET", `/v2/messages/${id}`);
    expect(status).toBe(200);
    expect(body).not.toHaveProperty("waitingOn");
  });

  test("for its next attempt, after a response or an error", async () => {
    const id = await publish({ "svc-retries": "5", "svc-retry-delay": "10000" });
    await server.settle(server.delivery(), { status: 500 });
    const first = { reason: "retry", until: testTime + 10_000, used: 1, limit: 5 };
    expect(await waitingOn(id)).toEqual([
      { ...first, text: "retry 1 of 5 at 2027-01-15T08:00:10.000Z, after status 500", status: 500 },
    ]);
    server.clock.now += 10_000;
    await claim();
    await server.settle(server.delivery(), { error: "connection refused" });
    expect(await waitingOn(id)).toEqual([
      {
        reason: "retry",
        until: testTime + 20_000,
        used: 2,
        limit: 5,
        error: "connection refused",
        text: "retry 2 of 5 at 2027-01-15T08:00:20.000Z, after: connection refused",
      },
    ]);
  });

  test("for nothing once it is cancelled", async () => {
    const id = await publish({ "svc-delay": "1h" });
    await server.ask("DELETE", `/v2/messages/${id}`);
    const { status, body } = await server.ask("GET", `/v2/messages/${id}`);
    expect(status).toBe(200);
    expect(body).not.toHaveProperty("waitingOn");
  });
});

describe("in a queue", () => {
  test("a message waits for an aborted request to end", async () => {
    const first = await enqueue();
    const second = await enqueue();
    await server.ask("DELETE", `/v2/messages/${first}`);
    const text = `message ${first} (cancelled, but its request by node nod_1 still runs)`;
    expect(await waitingOn(second)).toMatchObject([
      { reason: "queue", behind: [{ messageId: first, text }] },
    ]);
    await server.settle(server.delivery(), { error: "aborted" });
    expect(await waitingOn(second)).toMatchObject([{ reason: "sending" }]);
  });

  test("a message waits for the one before it, regardless of why that message waits", async () => {
    const first = await enqueue({ "svc-retry-delay": "10000" });
    const second = await enqueue();
    const third = await enqueue();
    const queue = { reason: "queue", queue: "q", used: 1, limit: 1 };
    const behind = `message ${first} (being sent by node nod_1)`;
    const told = [{ messageId: first, text: behind }];
    expect(await waitingOn(second)).toEqual([
      {
        ...queue,
        text: `queue q: 1 of 1 slots in use, behind ${behind}; none ahead of it in the waitlist`,
        position: 0,
        behind: told,
      },
    ]);
    expect(await waitingOn(third)).toEqual([
      {
        ...queue,
        text: `queue q: 1 of 1 slots in use, behind ${behind}; 1 ahead of it in the waitlist`,
        position: 1,
        behind: told,
      },
    ]);
    await server.settle(server.delivery(), { status: 500 });
    expect((await waitingOn(second))[0].behind).toEqual([
      { messageId: first, text: `message ${first} (retry at 2027-01-15T08:00:10.000Z)` },
    ]);
    await server.ask("DELETE", `/v2/messages/${first}`);
    expect(await waitingOn(second)).toEqual([
      {
        reason: "turn",
        text: "queue q is open; the next node that checks claims it; none ahead of it in the waitlist",
        position: 0,
      },
    ]);
    await claim();
    expect(await waitingOn(second)).toEqual([sending]);
  });

  test("a message also waits for the callback of the one before it", async () => {
    const first = await enqueue({ "svc-callback": "https://c.example/", "svc-callback-retry-delay": "5000" });
    const second = await enqueue();
    await server.settle(server.delivery(), ok);
    const callback = server.delivery();
    const callbackId = callback.message.id;
    const [reason] = await waitingOn(second);
    expect(reason.behind).toEqual([
      {
        messageId: first,
        callbackId,
        text: `message ${first} (its callback ${callbackId}: being sent by node nod_1)`,
      },
    ]);
    await server.settle(callback, { status: 500 });
    expect((await waitingOn(second))[0].text).toBe(
      `queue q: 1 of 1 slots in use, behind message ${first} (its callback ${callbackId}: retry at ` +
        "2027-01-15T08:00:05.000Z); none ahead of it in the waitlist",
    );
  });

  test("at most three of the messages that hold slots are named", async () => {
    await server.ask("POST", "/v2/queues", { body: JSON.stringify({ queueName: "q", parallelism: 5 }) });
    const ids = await Promise.all([1, 2, 3, 4, 5].map(() => enqueue()));
    const [reason] = await waitingOn(await enqueue());
    expect(reason.behind.map(({ messageId }: { messageId: string }) => messageId)).toEqual(
      ids.toSorted().slice(0, 3),
    );
    expect(reason.text).toMatch(
      new RegExp(
        "^queue q: 5 of 5 slots in use, behind message .*, message .*, message [^,]*, 2 more; " +
          "none ahead of it in the waitlist$",
      ),
    );
  });

  test("a message waits while the queue is paused, and is sent after it is resumed", async () => {
    await command("/v2/queues/q/pause");
    const id = await enqueue();
    const later = await enqueue({ "svc-delay": "1m" });
    const paused = { reason: "queue-paused", queue: "q" };
    expect(await waitingOn(id)).toEqual([
      { ...paused, text: "queue q is paused; none ahead of it in the waitlist", position: 0 },
    ]);
    expect(await waitingOn(later)).toEqual([
      { reason: "not-due", text: "due at 2027-01-15T08:01:00.000Z", until: testTime + 60_000 },
      { ...paused, text: "queue q is paused" },
    ]);
    await command("/v2/queues/q/resume");
    expect((await waitingOn(id)).map(({ reason }: { reason: string }) => reason)).toEqual(["turn"]);
    expect((await waitingOn(later)).map(({ reason }: { reason: string }) => reason)).toEqual(["not-due"]);
    await claim();
    expect(await waitingOn(id)).toEqual([sending]);
  });

  test("a message that holds a slot waits for its retry and for the paused queue", async () => {
    const id = await enqueue({ "svc-retry-delay": "10000" });
    await server.settle(server.delivery(), { status: 500 });
    await command("/v2/queues/q/pause");
    expect((await waitingOn(id)).map(({ reason }: { reason: string }) => reason)).toEqual([
      "retry",
      "queue-paused",
    ]);
  });
});

describe("under a key", () => {
  test("a message waits for a delivery to end", async () => {
    for (let n = 0; n < 10; n++) await publish(limits("k", "parallelism=10"));
    for (let n = 0; n < 37; n++) await publish(limits("k", "parallelism=10"));
    const id = await publish(limits("k", "parallelism=10"));
    expect(await waitingOn(id)).toEqual([
      {
        reason: "key-parallelism",
        text: "key k: 10 of 10 in flight; 37 ahead of it in the waitlist",
        key: "k",
        used: 10,
        limit: 10,
        position: 37,
      },
    ]);
  });

  test("a message waits for the next window and for parallelism", async () => {
    for (let n = 0; n < 5; n++) await publish(limits("k", "rate=5, period=1m, parallelism=5"));
    const id = await publish(limits("k", "rate=5, period=1m, parallelism=5"));
    const rate = {
      reason: "key-rate",
      text: "key k: rate 5 of 5 used until 2027-01-15T08:01:00.000Z; none ahead of it in the waitlist",
      key: "k",
      used: 5,
      limit: 5,
      until: testTime + 60_000,
      position: 0,
    };
    const parallelism = {
      reason: "key-parallelism",
      text: "key k: 5 of 5 in flight; none ahead of it in the waitlist",
    };
    expect(await waitingOn(id)).toEqual([{ ...parallelism, key: "k", used: 5, limit: 5, position: 0 }, rate]);
    for (const delivery of server.deliveries.splice(0)) await server.settle(delivery, ok);
    expect(await waitingOn(id)).toEqual([rate]);
    server.clock.now += 60_000;
    expect(await waitingOn(id)).toEqual([
      {
        reason: "turn",
        text: "key k is open; the next node that checks claims it; none ahead of it in the waitlist",
        position: 0,
      },
    ]);
  });

  test("a message waits while the key is paused, with its retry, and in its queue", async () => {
    const retried = await publish({ ...limits("k", "parallelism=1"), "svc-retry-delay": "10000" });
    await server.settle(server.delivery(), { status: 503 });
    await command("/v2/flowControl/k/pause");
    const id = await publish(limits("k", "parallelism=1"));
    const queued = await enqueue(limits("k", "parallelism=1"));
    const next = await enqueue(limits("k", "parallelism=1"));
    const paused = { reason: "key-paused", key: "k" };
    expect(await waitingOn(id)).toEqual([
      { ...paused, text: "key k is paused; none ahead of it in the waitlist", position: 0 },
    ]);
    expect(await waitingOn(queued)).toEqual([
      { ...paused, text: "key k is paused; 1 ahead of it in the waitlist", position: 1 },
    ]);
    expect(await waitingOn(retried)).toMatchObject([
      { reason: "retry" },
      { ...paused, text: "key k is paused" },
    ]);
    expect(await waitingOn(next)).toEqual([
      {
        reason: "queue",
        text:
          `queue q: 1 of 1 slots in use, behind message ${queued} (in the waitlist of key k); ` +
          "none ahead of it in the waitlist",
        queue: "q",
        used: 1,
        limit: 1,
        position: 0,
        behind: [{ messageId: queued, text: `message ${queued} (in the waitlist of key k)` }],
      },
      { ...paused, text: "key k is paused" },
    ]);
    await command("/v2/flowControl/k/resume");
    expect((await waitingOn(next)).length).toBe(1);
    expect((await waitingOn(id)).map(({ reason }: { reason: string }) => reason)).toEqual(["turn"]);
  });
});

describe("for a host", () => {
  test("a message waits while the node is at capacity", async () => {
    setFreeCapacity(0);
    const one = await publish();
    const two = await publish();
    const other = await publish({}, "other.example");
    await claim();
    const reason = { reason: "host", host: "e.example" };
    expect(await waitingOn(one)).toEqual([
      {
        ...reason,
        text: "no free delivery capacity for host e.example; none ahead of it in the waitlist",
        position: 0,
      },
    ]);
    expect(await waitingOn(two)).toEqual([
      {
        ...reason,
        text: "no free delivery capacity for host e.example; 1 ahead of it in the waitlist",
        position: 1,
      },
    ]);
    expect((await waitingOn(other))[0]).toMatchObject({ host: "other.example", position: 0 });
    setFreeCapacity(100);
    server.clock.now += 1_000;
    await claim();
    expect((await waitingOn(two))[0].reason).toBe("sending");
  });
});
