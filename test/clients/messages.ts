import { expect, test } from "vitest";
import type { TestUser } from "./clientTestServer.ts";
import { eventually, delayedDestination, startVerifyingDestination } from "./clientTestServer.ts";

/** Tests reads and cancellation of messages with the published client. */
export function messages(createUser: () => TestUser): void {
  test("a message can be read with all its settings", async () => {
    const { clientWith } = createUser();
    const client = clientWith({ enableTelemetry: true });
    const { messageId } = await client.publish({
      url: "https://example.com/a?b=c",
      body: "later",
      delay: 3600,
      retries: 7,
      method: "PUT",
      retryDelay: "1000 * (1 + retried)",
      label: ["mine", "yours"],
      headers: { "test-header": "value", "Content-Type": "text/plain" },
      callback: "https://example.com/callback",
      failureCallback: "https://example.com/failure",
      flowControl: { key: "shop", parallelism: 3, rate: 10, period: "1d" },
    });
    const message = await client.messages.get(messageId);
    expect(message).toEqual({
      messageId,
      url: "https://example.com/a?b=c",
      method: "PUT",
      body: "later",
      maxRetries: 7,
      retryDelayExpression: "1000 * (1 + retried)",
      label: "mine",
      labels: ["mine", "yours"],
      callerIP: "127.0.0.1",
      callback: "https://example.com/callback",
      failureCallback: "https://example.com/failure",
      header: { "Test-Header": ["value"], "Content-Type": ["text/plain"] },
      flowControlKey: "shop",
      parallelism: 3,
      rate: 10,
      ratePerSecond: 10,
      period: 86_400,
      createdAt: expect.any(Number),
      notBefore: message.createdAt + 3_600_000,
      urlGroup: undefined,
      // The client passes on fields that it does not know.
      state: "pending",
      dueAt: message.notBefore,
      attempts: 0,
      outcomes: [],
      waitingOn: [expect.objectContaining({ reason: "not-due", until: message.notBefore })],
    });
  });

  test("a message without settings is shown without them", async () => {
    const { client } = createUser();
    const notBefore = Math.floor(Date.now() / 1000) + 600;
    const { messageId } = await client.publish({ url: "https://example.com", notBefore });
    expect(await client.messages.get(messageId)).toEqual({
      messageId,
      url: "https://example.com",
      method: "POST",
      maxRetries: 3,
      header: {},
      callerIP: "127.0.0.1",
      createdAt: expect.any(Number),
      notBefore: notBefore * 1000,
      urlGroup: undefined,
      ratePerSecond: undefined,
      state: "pending",
      dueAt: notBefore * 1000,
      attempts: 0,
      outcomes: [],
      waitingOn: [expect.objectContaining({ reason: "not-due", until: notBefore * 1000 })],
    });
  });

  test("a body that is not text is shown in base64", async () => {
    const { client } = createUser();
    const { messageId } = await client.publish({
      ...delayedDestination,
      body: new Blob([new Uint8Array([0xff, 0xfe])]),
    });
    const message = await client.messages.get(messageId);
    expect(message).toMatchObject({ bodyBase64: "//4=" });
    expect(message.body).toBeUndefined();
  });

  test("a message that was just delivered can still be read and cancelled", async () => {
    const user = createUser();
    const { client } = user;
    const destination = await startVerifyingDestination(user);
    const { messageId } = await client.publish({ url: destination.url, label: "gone" });
    await eventually(
      () => client.logs({ filter: { messageId } }),
      (page) => page.logs[0]?.state === "DELIVERED",
    );
    expect(await client.messages.get(messageId)).toMatchObject({ messageId, label: "gone" });
    expect(await client.messages.cancel(messageId)).toEqual({ cancelled: expect.any(Number) });
    expect(await client.messages.cancel({ all: true })).toEqual({ cancelled: 0 });
  });

  test("one message, several and all others can be cancelled", async () => {
    const { client } = createUser();
    const publish = (label: string) => client.publish({ ...delayedDestination, label });
    const one = await publish("a");
    const two = await publish("b");
    await publish("c");
    expect(await client.messages.cancel(one.messageId)).toEqual({ cancelled: 1 });
    expect(await client.messages.cancel([one.messageId, two.messageId, "msg_unknown"])).toEqual({
      cancelled: 1,
    });
    expect(await client.messages.cancel({ all: true })).toEqual({ cancelled: 1 });
    expect(await client.messages.cancel([])).toEqual({ cancelled: 0 });
    const { logs } = await client.logs({ filter: { messageId: two.messageId } });
    expect(logs.map(({ state }) => state)).toContain("CANCELLED");
  });

  test("unknown messages are refused with 404", async () => {
    const { client } = createUser();
    await expect(client.messages.get("msg_unknown")).rejects.toMatchObject({ status: 404 });
    await expect(client.messages.cancel("msg_unknown")).rejects.toMatchObject({ status: 404 });
  });

  test("the older names for cancelling work", async () => {
    const { client } = createUser();
    const ids: string[] = [];
    for (let number = 0; number < 5; number++) ids.push((await client.publish(delayedDestination)).messageId);
    expect(await client.messages.delete(ids[0] ?? "")).toBeUndefined();
    expect(await client.messages.deleteMany(ids.slice(0, 3))).toBe(2);
    expect(await client.messages.deleteAll()).toBe(2);
  });

  test("cancelling by a filter cancels only its messages", async () => {
    const { client } = createUser();
    const before = Date.now() - 60_000;
    const after = Date.now() + 60_000;
    await client.urlGroups.addEndpoints({ name: "group", endpoints: [{ url: "https://group.example" }] });
    const publish = () =>
      Promise.all([
        client.publish({ url: "https://one.example/cancel-path-a", delay: 600, label: ["red", "warm"] }),
        client.publish({
          url: "https://two.example/cancel-path-b",
          delay: 600,
          label: "blue",
          flowControl: { key: "shop", rate: 1 },
        }),
        client.publish({ urlGroup: "group", delay: 600 }),
        client.queue({ queueName: "line" }).enqueue({ url: "https://line.example", delay: 600 }),
      ]);
    const filters = [
      [{ label: "red" }, 1],
      [{ label: ["warm", "blue"] }, 2],
      [{ label: "red", host: "two.example" }, 0],
      [{ host: ["one.example", "two.example"] }, 2],
      [{ path: "/cancel-path-a" }, 1],
      [{ url: ["https://one.example/cancel-path-a", "https://line.example"] }, 2],
      [{ urlGroup: "group" }, 1],
      [{ queueName: "line" }, 1],
      [{ flowControlKey: "shop" }, 1],
      [{ scheduleId: "scd_none" }, 0],
      [{ callerIp: "127.0.0.1" }, 4],
      [{ fromDate: before, toDate: after }, 4],
      [{ fromDate: after }, 0],
      [{ toDate: before }, 0],
    ] as const;
    for (const [filter, cancelled] of filters) {
      await client.messages.cancel({ all: true });
      await publish();
      expect({ filter, ...(await client.messages.cancel({ filter: filter as { label: string } })) }).toEqual({
        filter,
        cancelled,
      });
    }
    await client.messages.cancel({ all: true });
    await publish();
    expect(await client.messages.cancel({ filter: { callerIp: "127.0.0.1" }, count: 3 })).toEqual({
      cancelled: 3,
    });
    expect(await client.messages.cancel({ all: true, count: 500 })).toEqual({ cancelled: 1 });
  });

  test("one call cancels any number of messages: all, those of a filter, or many ids", async () => {
    const { client } = createUser();
    const publish = async (label: string, count: number): Promise<string[]> => {
      const results = await client.batch(
        Array.from({ length: count }, () => ({ ...delayedDestination, label })),
      );
      return results.map((result) => ("messageId" in result ? result.messageId : ""));
    };
    await publish("red", 250);
    const blue = await publish("blue", 150);
    await publish("green", 130);
    expect(await client.messages.cancel({ filter: { label: "red" } })).toEqual({ cancelled: 250 });
    expect(await client.messages.cancel(blue)).toEqual({ cancelled: 150 });
    expect(await client.messages.deleteAll()).toBe(130);
    expect(await client.messages.cancel({ all: true })).toEqual({ cancelled: 0 });
  });
}
