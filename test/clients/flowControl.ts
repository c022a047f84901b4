import { expect, test } from "vitest";
import type { TestUser } from "./clientTestServer.ts";
import {
  eventually,
  delayedDestination,
  startHeldDestination,
  startVerifyingDestination,
} from "./clientTestServer.ts";

const key = "shop 7: ü";

/** Tests flow control with the published client. */
export function flowControl(createUser: () => TestUser): void {
  test("a key exists right after its first publish, with all fields of its type", async () => {
    const { client } = createUser();
    await client.publish({
      ...delayedDestination,
      flowControl: { key, parallelism: 3, rate: 10, period: "1m" },
    });
    expect(await client.flowControl.get(key)).toEqual({
      flowControlKey: key,
      waitListSize: 0,
      waitlistSize: 0,
      parallelismMax: 3,
      parallelismCount: 0,
      rateMax: 10,
      rateCount: 0,
      ratePeriod: 60,
      ratePeriodStart: expect.any(Number),
      isPaused: false,
      isPinnedParallelism: false,
      isPinnedRate: false,
    });
  });

  test("a key exists and counts a message after its delivery", async () => {
    const user = createUser();
    const { client } = user;
    const destination = await startVerifyingDestination(user);
    await client.publish({ url: destination.url, flowControl: { key, rate: 5, period: 3600 } });
    expect(await client.flowControl.get(key)).toMatchObject({
      rateMax: 5,
      ratePeriod: 3600,
      parallelismMax: expect.any(Number),
    });
    await destination.first();
    const limiter = await eventually(
      () => client.flowControl.get(key),
      ({ parallelismCount }) => parallelismCount === 0,
    );
    expect(limiter).toMatchObject({ rateCount: 1, waitListSize: 0 });
    expect(Math.abs(limiter.ratePeriodStart * 1000 - Date.now())).toBeLessThan(3_600_000);
  });

  test("the older name of the rate works, and the default period is 1 s", async () => {
    const { client } = createUser();
    const { messageId } = await client.publish({
      ...delayedDestination,
      flowControl: { key, ratePerSecond: 7 },
    });
    expect(await client.messages.get(messageId)).toMatchObject({
      flowControlKey: key,
      rate: 7,
      ratePerSecond: 7,
    });
    expect(await client.flowControl.get(key)).toMatchObject({ rateMax: 7, ratePeriod: 1 });
  });

  test("a period without a rate limits nothing and is kept", async () => {
    const { client } = createUser();
    const limiter = { key, parallelism: 3, period: "1d" } as const;
    const { messageId } = await client.publish({ ...delayedDestination, flowControl: limiter });
    expect(await client.messages.get(messageId)).toMatchObject({
      flowControlKey: key,
      parallelism: 3,
      period: 86_400,
    });
    expect(await client.flowControl.get(key)).toMatchObject({ parallelismMax: 3, rateMax: 0 });
    const { scheduleId } = await client.schedules.create({
      destination: "https://example.com",
      cron: "0 0 1 1 *",
      flowControl: limiter,
    });
    expect(await client.schedules.get(scheduleId)).toMatchObject({
      flowControlKey: key,
      parallelism: 3,
      period: 86_400,
    });
  });

  test("a key can be paused and pinned before its first message", async () => {
    const user = createUser();
    const { client } = user;
    const destination = await startVerifyingDestination(user);
    await client.flowControl.pause(key);
    await client.flowControl.pin(key, { parallelism: 1 });
    await client.publish({ url: destination.url, flowControl: { key, parallelism: 9 } });
    expect(await client.flowControl.get(key)).toMatchObject({
      isPaused: true,
      waitListSize: 1,
      parallelismMax: 1,
      isPinnedParallelism: true,
    });
    await client.flowControl.resume(key);
    await destination.first();
  });

  test("a message that waits for its key can be cancelled and does not block others", async () => {
    const { client } = createUser();
    const held = await startHeldDestination();
    const limiter = { url: held.url, flowControl: { key, parallelism: 1 } };
    await client.publish(limiter);
    await held.until(1);
    const { messageId } = await client.publish(limiter);
    expect(await client.messages.get(messageId)).toMatchObject({
      waitingOn: [{ reason: expect.any(String), text: expect.any(String) }],
    });
    expect(await client.messages.cancel(messageId)).toEqual({ cancelled: 1 });
    expect(await client.flowControl.get(key)).toMatchObject({ waitListSize: 0, parallelismCount: 1 });
    held.release();
  });

  test("a key without messages is unknown", async () => {
    await expect(createUser().client.flowControl.get("nobody")).rejects.toMatchObject({ status: 404 });
  });

  test("deliveries at once do not exceed the parallelism of the key", async () => {
    const { client } = createUser();
    const held = await startHeldDestination();
    for (let n = 0; n < 3; n++) await client.publish({ url: held.url, flowControl: { key, parallelism: 1 } });
    await held.until(1);
    expect(await client.flowControl.get(key)).toMatchObject({
      parallelismMax: 1,
      parallelismCount: 1,
      waitListSize: 2,
    });
    for (let n = 1; n < 3; n++) {
      held.release();
      await held.until(n + 1);
    }
    held.release();
    await eventually(
      () => client.flowControl.get(key),
      ({ parallelismCount }) => parallelismCount === 0,
    );
    expect(held.max()).toBe(1);
  });

  test("deliveries per period do not exceed the rate of the key until the rate is reset", async () => {
    const user = createUser();
    const { client } = user;
    const destination = await startVerifyingDestination(user);
    for (const path of ["/1", "/2"])
      await client.publish({ url: destination.url + path, flowControl: { key, rate: 1, period: "7d" } });
    await destination.first();
    expect(await client.flowControl.get(key)).toMatchObject({
      rateMax: 1,
      rateCount: 1,
      ratePeriod: 604_800,
      waitListSize: 1,
    });
    expect(await client.flowControl.resetRate(key)).toBeUndefined();
    const arrivals = await destination.until(({ length }) => length === 2);
    expect(arrivals.map(({ path }) => path)).toEqual(["/1", "/2"]);
    expect(await client.flowControl.get(key)).toMatchObject({ rateCount: 1, waitListSize: 0 });
    await client.flowControl.resetRate(key);
    expect(await client.flowControl.get(key)).toMatchObject({ rateCount: 0 });
  });

  test("each new period allows further deliveries", { tags: "long" }, async () => {
    const user = createUser();
    const { client } = user;
    const destination = await startVerifyingDestination(user);
    const limiter = { key, rate: 2, period: 1 };
    await client.batch(
      [1, 2, 3, 4, 5].map((n) => ({ url: `${destination.url}/${n}`, flowControl: limiter })),
    );
    const arrivals = await destination.until(({ length }) => length === 5);
    expect(arrivals.map(({ path }) => path).toSorted()).toEqual(["/1", "/2", "/3", "/4", "/5"]);
    expect((await client.flowControl.get(key)).rateCount).toBeLessThanOrEqual(2);
  });

  test("messages of a paused key wait until it is resumed", async () => {
    const user = createUser();
    const { client } = user;
    const destination = await startVerifyingDestination(user);
    await client.publish({ ...delayedDestination, flowControl: { key, parallelism: 5 } });
    expect(await client.flowControl.pause(key)).toBeUndefined();
    expect((await client.flowControl.get(key)).isPaused).toBe(true);
    await client.publish({ url: destination.url, flowControl: { key, parallelism: 5 } });
    expect((await client.flowControl.get(key)).waitListSize).toBe(1);
    expect(destination.arrivals).toEqual([]);
    expect(await client.flowControl.resume(key)).toBeUndefined();
    expect((await client.flowControl.get(key)).isPaused).toBe(false);
    await destination.first();
  });

  test("messages do not change pinned limits until each is unpinned", async () => {
    const { client } = createUser();
    const publish = (parallelism: number, rate: number) =>
      client.publish({ ...delayedDestination, flowControl: { key, parallelism, rate, period: "1m" } });
    const limiter = () => client.flowControl.get(key);
    await publish(1, 1);
    expect(await client.flowControl.pin(key, { parallelism: 20, rate: 200, period: 120 })).toBeUndefined();
    const pinned = {
      parallelismMax: 20,
      rateMax: 200,
      ratePeriod: 120,
      isPinnedParallelism: true,
      isPinnedRate: true,
    };
    expect(await limiter()).toMatchObject(pinned);
    await publish(2, 2);
    expect(await limiter()).toMatchObject(pinned);
    expect(await client.flowControl.unpin(key, { parallelism: true })).toBeUndefined();
    expect(await limiter()).toMatchObject({ ...pinned, isPinnedParallelism: false });
    await publish(3, 3);
    expect(await limiter()).toMatchObject({ ...pinned, isPinnedParallelism: false, parallelismMax: 3 });
    await client.flowControl.unpin(key, { rate: true });
    expect(await limiter()).toMatchObject({ parallelismMax: 3, rateMax: 200, isPinnedRate: false });
    await publish(4, 4);
    expect(await limiter()).toMatchObject({ parallelismMax: 4, rateMax: 4, ratePeriod: 60 });
  });

  test("one limit can be pinned alone", async () => {
    const { client } = createUser();
    await client.publish({
      ...delayedDestination,
      flowControl: { key, parallelism: 1, rate: 1, period: "1m" },
    });
    await client.flowControl.pin(key, { rate: 7 });
    expect(await client.flowControl.get(key)).toMatchObject({
      parallelismMax: 1,
      isPinnedParallelism: false,
      rateMax: 7,
      isPinnedRate: true,
    });
    await client.flowControl.pin(key, { parallelism: 8 });
    expect(await client.flowControl.get(key)).toMatchObject({
      parallelismMax: 8,
      isPinnedParallelism: true,
      rateMax: 7,
      isPinnedRate: true,
    });
  });

  test("invalid values are refused", async () => {
    const { client } = createUser();
    await client.publish({ ...delayedDestination, flowControl: { key, parallelism: 1 } });
    await expect(client.flowControl.pin(key, { parallelism: -1 })).rejects.toMatchObject({ status: 400 });
    await expect(client.flowControl.pin(key, { rate: 1, period: 8 * 86_400 })).rejects.toMatchObject({
      status: 400,
    });
    expect(await client.flowControl.get(key)).toMatchObject({
      parallelismMax: 1,
      isPinnedParallelism: false,
    });
  });

  test("all deliveries of the account have a common count", async () => {
    const { client } = createUser();
    const held = await startHeldDestination();
    const before = await client.flowControl.getGlobalParallelism();
    expect(before).toEqual({ parallelismMax: expect.any(Number), parallelismCount: expect.any(Number) });
    await client.publish({ url: held.url });
    await held.until(1);
    expect((await client.flowControl.getGlobalParallelism()).parallelismMax).toBe(before.parallelismMax);
    held.release();
  });
}
