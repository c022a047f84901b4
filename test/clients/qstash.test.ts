import { Client, Receiver } from "@upstash/qstash";
import { beforeEach, describe, expect, test } from "vitest";
import type { Process } from "../process/waypost.ts";
import { freshDatabase } from "../postgres.ts";
import { developmentToken, startDestination, startWaypost } from "../process/waypost.ts";

/** The published client, unmodified, against the real server, on each store that it can have. */
const stores = [
  { store: "SQLite", argumentsOf: async () => [] },
  { store: "PostgreSQL", argumentsOf: async () => ["--database-url", await freshDatabase()] },
];

let server: Process;
let client: Client;
const receiver = new Receiver({
  currentSigningKey: "sig_7kYjw48mhY7kAjqNGcy6cr29RJ6r",
  nextSigningKey: "sig_5ZB6DVzB1wjE8S6rZ7eenA8Pdnhs",
});

/** Asks again until the answer will do: what follows a delivery is stored a moment after it. */
async function eventually<T>(ask: () => Promise<T>, good: (value: T) => boolean): Promise<T> {
  for (;;) {
    const value = await ask();
    if (good(value)) return value;
    await new Promise((resolve) => setTimeout(resolve, 10));
  }
}

describe.each(stores)("on $store", ({ argumentsOf }) => {
  beforeEach(async () => {
    server = await startWaypost(["dev", "--port", "0", ...(await argumentsOf())]);
    client = new Client({ baseUrl: server.url, token: developmentToken, enableTelemetry: true });
  });

  describe("publish", () => {
    test("publishJSON arrives with its headers, and the Receiver verifies it", async () => {
      const destination = await startDestination();
      const url = `${destination.url}/api//deep/?a=1&b=%20x`;
      const { messageId } = await client.publishJSON({ url, body: { hello: "wörld" }, headers: { "X-Mine": "yes" }, label: "first" });
      await destination.until((arrivals) => arrivals.length === 1);
      const [arrival] = destination.arrivals;
      if (!arrival) throw new Error("nothing arrived");
      expect(arrival).toMatchObject({ method: "POST", path: "/api//deep/?a=1&b=%20x" });
      expect(arrival.headers).toMatchObject({
        ...{ "content-type": "application/json", "x-mine": "yes", "user-agent": "Upstash-QStash" },
        ...{ "upstash-message-id": messageId, "upstash-retried": "0" },
      });
      expect(Object.keys(arrival.headers).filter((name) => name.includes("telemetry"))).toEqual([]);
      const signature = String(arrival.headers["upstash-signature"]);
      expect(await receiver.verify({ signature, body: arrival.body.toString(), url })).toBe(true);
      await expect(receiver.verify({ signature, body: `${arrival.body.toString()} ` })).rejects.toThrow(/body|hash/i);
    });

    test("a message can be read back with all its settings", async () => {
      const { messageId } = await client.publish({
        url: "https://example.com/a?b=c",
        ...{ body: "later", delay: 3600, retries: 7, retryDelay: "1000 * (1 + retried)", method: "PUT", label: "mine" },
        ...{
          callback: "https://example.com/callback",
          failureCallback: "https://example.com/failure",
          headers: { "Test-Header": "value" },
        },
      });
      const message = await client.messages.get(messageId);
      expect(message).toMatchObject({
        ...{ messageId, url: "https://example.com/a?b=c", method: "PUT", body: "later", maxRetries: 7 },
        ...{ retryDelayExpression: "1000 * (1 + retried)", label: "mine", labels: ["mine"] },
        ...{ callback: "https://example.com/callback", failureCallback: "https://example.com/failure" },
        ...{ header: { "Test-Header": ["value"] } },
      });
      expect(message.notBefore).toBeGreaterThanOrEqual(message.createdAt + 3_600_000);
    });

    test("the same deduplication id makes one message", async () => {
      const first = await client.publish({ url: "https://example.com", delay: 60, deduplicationId: "once" });
      const second = await client.publish({ url: "https://example.com", delay: 60, deduplicationId: "once" });
      expect(second).toMatchObject({ messageId: first.messageId, deduplicated: true });
    });

    test("a batch answers in its order", async () => {
      const results = await client.batchJSON([
        { url: "https://example.com/one", body: 1, delay: 60 },
        { url: "https://example.com/two", body: 2, delay: 60 },
      ]);
      const ids = results.map((result) => ("messageId" in result ? result.messageId : ""));
      const urls = await Promise.all(ids.map(async (id) => (await client.messages.get(id)).url));
      expect(urls).toEqual(["https://example.com/one", "https://example.com/two"]);
    });

    test("too many retries are refused with 412", async () => {
      await expect(client.publish({ url: "https://example.com", retries: 1_000_000 })).rejects.toMatchObject({ status: 412 });
    });
  });

  describe("messages", () => {
    test("cancel one, several, and the rest", async () => {
      const publish = (label: string) => client.publish({ url: "https://example.com", delay: 600, label });
      const [one, two] = [await publish("a"), await publish("b")];
      await publish("c");
      expect(await client.messages.cancel(one.messageId)).toEqual({ cancelled: 1 });
      await expect(client.messages.get(`${one.messageId}x`)).rejects.toMatchObject({ status: 404 });
      expect(await client.messages.cancel([one.messageId, two.messageId])).toEqual({ cancelled: 1 });
      expect(await client.messages.cancel({ all: true })).toEqual({ cancelled: 1 });
    });

    test("cancel by filter takes only what it names", async () => {
      await client.publish({ url: "https://example.com/x", delay: 600, label: "red" });
      await client.publish({ url: "https://example.com/y", delay: 600, label: "blue" });
      expect(await client.messages.cancel({ filter: { label: "red" } })).toEqual({ cancelled: 1 });
      expect(await client.messages.cancel({ filter: { label: ["red", "blue"] } })).toEqual({ cancelled: 1 });
    });
  });

  describe("dead letters and logs", () => {
    test("a message that fails for good is listed, retried and deleted", async () => {
      const destination = await startDestination(() => ({ status: 418, body: "no tea" }));
      const { messageId } = await client.publish({ url: `${destination.url}/pot`, retries: 0, label: "tea" });
      const list = () => client.dlq.listMessages({ filter: { label: "tea" } });
      const { messages, cursor } = await eventually(list, (page) => page.messages.length === 1);
      expect(cursor).toBeUndefined();
      expect(messages[0]).toMatchObject({ messageId, responseStatus: 418, responseBody: "no tea", url: `${destination.url}/pot` });

      const dlqId = messages[0]?.dlqId ?? "";
      const retried = await client.dlq.retry(dlqId);
      expect(retried.responses).toHaveLength(1);
      expect(retried.responses[0]?.messageId).not.toBe(messageId);
      await expect(client.dlq.delete(dlqId)).rejects.toMatchObject({ status: 404 });
      const again = await eventually(list, (page) => page.messages.length === 1);
      expect(await client.dlq.delete({ dlqIds: [again.messages[0]?.dlqId ?? ""] })).toEqual({ deleted: 1 });
      expect((await client.dlq.listMessages()).messages).toEqual([]);
    });

    test("unknown filters are refused", async () => {
      await expect(client.dlq.listMessages({ filter: { labeel: "x" } as object })).rejects.toMatchObject({ status: 400 });
    });

    test("the log tells of each step", async () => {
      let calls = 0;
      const destination = await startDestination(() => ({ status: ++calls === 1 ? 503 : 200, headers: { "retry-after": "0" } }));
      const { messageId } = await client.publish({ url: destination.url, label: "told" });
      const ask = () => client.logs({ filter: { messageId } });
      const { logs } = await eventually(ask, (page) => page.logs[0]?.state === "DELIVERED");
      expect(logs.map(({ state }) => state).reverse()).toEqual(["CREATED", "ACTIVE", "ERROR", "RETRY", "ACTIVE", "DELIVERED"]);
      expect(logs[0]).toMatchObject({ label: "told", url: destination.url });
    });
  });

  describe("callbacks", () => {
    test("a callback per attempt, and one failure callback that names the dead letter", async () => {
      const destination = await startDestination(({ path }) => ({
        status: path === "/work" ? 500 : 200,
        headers: { "fail-header-foo": "bar" },
        body: "broken",
      }));
      await client.publish({
        ...{ url: `${destination.url}/work`, body: "in", retries: 1, retryDelay: "1" },
        ...{ callback: `${destination.url}/callback`, failureCallback: `${destination.url}/failure` },
      });
      await destination.until((arrivals) => arrivals.filter(({ path }) => path !== "/work").length === 3);
      const told = (path: string) =>
        destination.arrivals.filter((arrival) => arrival.path === path).map(({ body }) => JSON.parse(body.toString()));
      const [first, second] = told("/callback").sort((a, b) => (a.retried ?? 0) - (b.retried ?? 0));
      expect(first).toMatchObject({ status: 500, maxRetries: 1, body: Buffer.from("broken").toString("base64") });
      expect(first).not.toHaveProperty("retried");
      expect(first.header["Fail-Header-Foo"]).toEqual(["bar"]);
      expect(second).toMatchObject({ status: 500, retried: 1, sourceBody: Buffer.from("in").toString("base64") });
      const [failure] = told("/failure");
      const entry = await eventually(
        () => client.dlq.listMessages(),
        (page) => page.messages.length === 1,
      );
      expect(failure.dlqId).toBe(entry.messages[0]?.dlqId);
    });
  });

  describe("development mode", () => {
    test("a client in development mode finds the server that is running", async () => {
      const destination = await startDestination();
      const port = new URL(server.url).port;
      process.env.QSTASH_DEV_PORT = port;
      const development = new Client({ devMode: true });
      const { messageId } = await development.publish({ url: `${destination.url}/dev` });
      await destination.until((arrivals) => arrivals.length === 1);
      expect(destination.arrivals[0]?.headers["upstash-message-id"]).toBe(messageId);
      delete process.env.QSTASH_DEV_PORT;
    });
  });
});
