import { expect, test } from "vitest";
import type { TestUser } from "./clientTestServer.ts";
import { eventually, startHeldDestination, startVerifyingDestination } from "./clientTestServer.ts";

/** Tests queues with the published client. */
export function queues(createUser: () => TestUser): void {
  testSettings(createUser);
  testDelivery(createUser);
}

function testSettings(createUser: () => TestUser): void {
  test("a queue is created, changed, listed, read and deleted", async () => {
    const { client } = createUser();
    const queue = client.queue({ queueName: "upsert-queue" });
    expect(await queue.list()).toEqual([]);
    expect(await queue.upsert({ parallelism: 1 })).toBeUndefined();
    const first = await queue.get();
    expect(first).toEqual({
      name: "upsert-queue",
      parallelism: 1,
      paused: false,
      lag: 0,
      createdAt: expect.any(Number),
      updatedAt: expect.any(Number),
    });
    await queue.upsert({ parallelism: 2 });
    const second = await queue.get();
    expect(second).toMatchObject({ parallelism: 2, createdAt: first.createdAt });
    expect(second.updatedAt).toBeGreaterThanOrEqual(first.updatedAt);
    expect(await queue.list()).toEqual([second]);
    expect(await queue.delete()).toBeUndefined();
    expect(await queue.list()).toEqual([]);
    await expect(queue.get()).rejects.toMatchObject({ status: 404 });
    await expect(queue.delete()).resolves.toBeUndefined();
  });

  test("a queue is paused and resumed repeatedly, by its own calls and by upsert", async () => {
    const { client } = createUser();
    const queue = client.queue({ queueName: "line" });
    const paused = async () => (await queue.get()).paused;
    await queue.upsert({});
    expect(await paused()).toBe(false);
    for (let times = 0; times < 2; times++) {
      expect(await queue.pause()).toBeUndefined();
      expect(await paused()).toBe(true);
    }
    for (let times = 0; times < 2; times++) {
      expect(await queue.resume()).toBeUndefined();
      expect(await paused()).toBe(false);
    }
    await queue.upsert({ paused: true });
    expect(await paused()).toBe(true);
    await queue.upsert({ paused: false });
    expect(await paused()).toBe(false);
  });

  test("invalid names are refused with 400, too much parallelism with 412", async () => {
    const { client } = createUser();
    await expect(client.queue({ queueName: "no such name" }).upsert({})).rejects.toMatchObject({
      status: 400,
    });
    await expect(
      client.queue({ queueName: "line" }).upsert({ parallelism: 1_000_000 }),
    ).rejects.toMatchObject({ status: 412 });
    await expect(client.queue({ queueName: "line" }).upsert({ parallelism: 0 })).rejects.toMatchObject({
      status: 400,
    });
    await expect(client.queue({ queueName: "unknown" }).get()).rejects.toMatchObject({ status: 404 });
    expect(await client.queue().list()).toEqual([]);
  });

  test("enqueue creates a missing queue with a parallelism of 1", async () => {
    const { client } = createUser();
    const queue = client.queue({ queueName: "new" });
    const { messageId } = await queue.enqueue({
      url: "https://example.com",
      delay: 600,
      label: "mine",
      body: "text",
    });
    expect(await queue.get()).toMatchObject({ name: "new", parallelism: 1, paused: false });
    expect(await client.messages.get(messageId)).toMatchObject({
      queueName: "new",
      label: "mine",
      body: "text",
      url: "https://example.com",
    });
  });

  test("enqueue does not change the limits of the queue", async () => {
    const { client } = createUser();
    const queue = client.queue({ queueName: "wide" });
    await queue.upsert({ parallelism: 5, paused: true });
    await queue.enqueueJSON({ url: "https://example.com", body: 1 });
    await client.batch([{ url: "https://example.com", queueName: "wide" }]);
    expect(await queue.get()).toMatchObject({ parallelism: 5, paused: true, lag: 2 });
  });
}

function testDelivery(createUser: () => TestUser): void {
  test("an enqueueJSON arrives signed through its queue", async () => {
    const user = createUser();
    const destination = await startVerifyingDestination(user);
    const queue = user.client.queue({ queueName: "line" });
    const { messageId } = await queue.enqueueJSON({
      url: `${destination.url}/a?b=c`,
      body: { n: 1 },
      headers: { "X-Mine": "yes" },
    });
    expect(await destination.first()).toMatchObject({
      method: "POST",
      path: "/a?b=c",
      body: Buffer.from('{"n":1}'),
      headers: { "content-type": "application/json", "x-mine": "yes", "upstash-message-id": messageId },
    });
    await eventually(
      () => queue.get(),
      ({ lag }) => lag === 0,
    );
  });

  test("messages are sent in order, each after the retries and callbacks of the last", async () => {
    const user = createUser();
    const { client } = user;
    const failing = new Map([["/1", 1]]);
    const destination = await startVerifyingDestination(user, ({ path }) => {
      const left = failing.get(path) ?? 0;
      failing.set(path, left - 1);
      return { status: left > 0 ? 500 : 200, headers: { "retry-after": "0" } };
    });
    const queue = client.queue({ queueName: "strict" });
    await queue.pause();
    for (const n of [1, 2, 3]) {
      const failureCallback = `${destination.url}/failed/${n}`;
      await queue.enqueue({
        url: `${destination.url}/${n}`,
        callback: `${destination.url}/told/${n}`,
        failureCallback,
      });
    }
    expect(await queue.get()).toMatchObject({ paused: true, lag: 3 });
    expect(destination.arrivals).toEqual([]);
    await queue.resume();
    const arrivals = await destination.until(({ length }) => length === 8);
    const paths = arrivals.map(({ path }) => path);
    const of = (n: number) => paths.flatMap((path, at) => (path.endsWith(`/${n}`) ? [at] : []));
    expect(paths.filter((path) => path === "/1")).toHaveLength(2);
    expect([...of(1), ...of(2), ...of(3)]).toEqual([0, 1, 2, 3, 4, 5, 6, 7]);
  });

  test("a queue sends as many messages at once as its parallelism", async () => {
    const user = createUser();
    const destination = await startVerifyingDestination(user);
    const held = await startHeldDestination();
    const queue = user.client.queue({ queueName: "wide" });
    await queue.upsert({ parallelism: 2 });
    for (let n = 0; n < 6; n++) await queue.enqueue({ url: held.url, callback: destination.url });
    for (let n = 0; n < 6; n += 2) {
      await held.until(n + 2);
      held.release();
    }
    await destination.until(({ length }) => length === 6);
    expect(held.max()).toBe(2);
  });

  test("a paused queue delivers nothing, and a failed message does not block the next", async () => {
    const user = createUser();
    const { client } = user;
    const destination = await startVerifyingDestination(user, ({ path }) => ({
      status: path === "/bad" ? 500 : 200,
    }));
    const queue = client.queue({ queueName: "line" });
    await queue.upsert({ paused: true });
    await queue.enqueue({ url: `${destination.url}/bad`, retries: 0 });
    await queue.enqueue({ url: `${destination.url}/good` });
    expect((await queue.get()).lag).toBe(2);
    await queue.upsert({ paused: false });
    const arrivals = await destination.until(({ length }) => length === 2);
    expect(arrivals.map(({ path }) => path)).toEqual(["/bad", "/good"]);
    const { messages } = await eventually(
      () => client.dlq.listMessages({ filter: { queueName: "line" } }),
      (page) => page.messages.length === 1,
    );
    expect(messages[0]).toMatchObject({ url: `${destination.url}/bad`, queueName: "line" });
  });

  test("a batch is queued in its order", async () => {
    const user = createUser();
    const destination = await startVerifyingDestination(user);
    const numbers = Array.from({ length: 40 }, (_, at) => at);
    const results = await user.client.batchJSON(
      numbers.map((n) => ({
        url: `${destination.url}/${n}`,
        body: n,
        queueName: "line",
        flowControl: { key: "all", parallelism: 3 },
      })),
    );
    const arrivals = await destination.until(({ length }) => length === numbers.length);
    expect(arrivals.map(({ path }) => path)).toEqual(numbers.map((n) => `/${n}`));
    expect(arrivals.map(({ headers }) => headers["upstash-message-id"])).toEqual(
      results.map(({ messageId }) => messageId),
    );
    await eventually(
      () => user.client.queue({ queueName: "line" }).get(),
      ({ lag }) => lag === 0,
    );
  });

  test("a cancelled message does not block the next", async () => {
    const { client } = createUser();
    const held = await startHeldDestination();
    const queue = client.queue({ queueName: "line" });
    const first = await queue.enqueue({ url: held.url });
    const second = await queue.enqueue({ url: held.url });
    await queue.enqueue({ url: held.url });
    await held.until(1);
    expect(await client.messages.cancel({ messageIds: [first.messageId, second.messageId] })).toEqual({
      cancelled: 2,
    });
    await held.until(2);
    expect(await queue.get()).toMatchObject({ lag: 1 });
    held.release();
    await eventually(
      () => queue.get(),
      ({ lag }) => lag === 0,
    );
  });

  test("the messages of a deleted queue are deleted", async () => {
    const { client } = createUser();
    const queue = client.queue({ queueName: "line" });
    await queue.pause();
    await queue.enqueue({ url: "https://example.com" });
    await queue.delete();
    expect(await queue.list()).toEqual([]);
    expect(await client.messages.cancel({ all: true })).toEqual({ cancelled: 0 });
  });
}
