import { describe, expect, test } from "vitest";
import { createTestServer, otherToken, token } from "../testServer.ts";
import type { TestServer } from "../testServer.ts";

describe("deduplication", () => {
  type Publish = { headers: Record<string, string>; body?: string; by?: string };
  const post = async ({ ask }: TestServer, url: string, { headers, body = "b", by = token }: Publish) =>
    ask("POST", `/v2/publish/${url}`, { headers, body, token: by });

  test("returns the older message with 202 for a known id, within one account", async () => {
    const server = await createTestServer();
    const first = await post(server, "https://e.example", { headers: { "svc-deduplication-id": "1" } });
    const second = await post(server, "https://other.example", {
      headers: { "upstash-deduplication-id": "1", "svc-content-based-deduplication": "true" },
    });
    expect(second).toMatchObject({
      status: 202,
      body: { messageId: first.body.messageId, deduplicated: true },
    });
    const asOther = { headers: { "svc-deduplication-id": "1" }, by: otherToken };
    expect((await post(server, "https://e.example", asOther)).status).toBe(200);
    expect(server.deliveries.length).toBe(2);
  });

  test("ignores the order of different headers, but not that of one header's values", async () => {
    const server = await createTestServer();
    const publish = async (...headers: [string, string][]) => {
      const given = headers.map(([name, value]) => ({ [`svc-forward-${name}`]: value }));
      const all = Object.assign({ "svc-content-based-deduplication": "true" }, ...given);
      return (await post(server, "https://e.example", { headers: all })).status;
    };
    expect([
      await publish(["a", "1"], ["b", "2"]),
      await publish(["b", "2"], ["a", "1"]),
      await publish(["b", "1"], ["a", "2"]),
    ]).toEqual([200, 202, 200]);
    const listed = async (values: string[]) =>
      (
        await server.ask("POST", "/v2/publish/https://e.example", {
          headers: {
            "svc-content-based-deduplication": "true",
            "svc-forward-a": values as unknown as string,
          },
          body: "b",
        })
      ).status;
    expect([await listed(["1", "2"]), await listed(["2", "1"])]).toEqual([200, 200]);
  });

  test("by content compares destination, body, content type and forwarded headers", async () => {
    const server = await createTestServer();
    const same = {
      "svc-content-based-deduplication": "true",
      "content-type": "text/plain",
      "svc-forward-a": "12",
    };
    const variants: [url: string, headers: Record<string, string>, body: string][] = [
      ["https://e.example", same, "b"],
      ["https://e.example/", same, "b"],
      ["https://e.example", { ...same, "content-type": "text/html" }, "b"],
      ["https://e.example", { ...same, "svc-forward-a": "1", "svc-forward-b": "2" }, "b"],
      ["https://e.example", { ...same, "svc-forward-a": "1" }, "2b"],
      ["https://e.example", same, "c"],
      ["https://e.example", same, ""],
    ];
    for (const [url, headers, body] of variants)
      expect((await post(server, url, { headers, body })).status).toBe(200);
    for (const [url, headers, body] of variants) {
      const changed = { ...headers, "x-other": "1", "svc-retries": "1" };
      expect((await post(server, url, { headers: changed, body })).status).toBe(202);
    }
  });
});
