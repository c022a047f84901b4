import { describe, expect, test } from "vitest";
import { house } from "./house.ts";

describe("a publish", () => {
  test("is answered with the id of a message that is delivered as it came", async () => {
    const { ask, delivery } = await house();
    const reply = await ask("POST", "/v2/publish/https://example.com/a//b?x=1&x=1&", {
      headers: { "content-type": "application/json", "svc-method": "PUT", "svc-forward-x-a": "1" },
      body: '{"a":1}',
    });
    const { message } = delivery();
    expect(reply).toMatchObject({ status: 200, body: { messageId: message.id } });
    expect(message).toMatchObject({ url: "https://example.com/a//b?x=1&x=1&", method: "PUT", brand: "svc" });
    expect(message.headers).toEqual([
      ["Content-Type", "application/json"],
      ["X-A", "1"],
    ]);
    expect(Buffer.from(message.body).toString()).toBe('{"a":1}');
  });
});
