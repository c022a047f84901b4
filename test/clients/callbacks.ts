import { decodeBase64 } from "@upstash/qstash";
import { expect, test } from "vitest";
import type { TestUser } from "./clientTestServer.ts";
import { eventually, startVerifyingDestination } from "./clientTestServer.ts";
import { startDestination } from "../server/waypost.ts";

/** Tests callbacks with the published client. */
export function callbacks(createUser: () => TestUser): void {
  test("each attempt has a callback, and one failure callback names the dead letter", async () => {
    const user = createUser();
    const { client } = user;
    const destination = await startVerifyingDestination(user, ({ path }) => ({
      status: path === "/work" ? 500 : 200,
      headers: { "fail-header-foo": "bar" },
      body: "brökén",
    }));
    const { messageId } = await client.publish({
      url: `${destination.url}/work`,
      body: "in",
      retries: 1,
      retryDelay: "1",
      headers: { "X-Source": "mine" },
      callback: `${destination.url}/callback`,
      failureCallback: `${destination.url}/failure`,
    });
    const arrivals = await destination.until(
      (all) => all.filter(({ path }) => path !== "/work").length === 3,
    );
    const told = (wanted: string) =>
      arrivals.filter(({ path }) => path === wanted).map(({ body }) => JSON.parse(body.toString()));
    const [first, second] = told("/callback").sort((a, b) => (a.retried ?? 0) - (b.retried ?? 0));
    expect(first).toMatchObject({
      status: 500,
      maxRetries: 1,
      sourceMessageId: messageId,
      url: `${destination.url}/work`,
      method: "POST",
      notBefore: expect.any(Number),
      createdAt: expect.any(Number),
    });
    expect(decodeBase64(first.body)).toBe("brökén");
    expect(first.retried).toBe(0);
    expect(first.header["Fail-Header-Foo"]).toEqual(["bar"]);
    expect(first.sourceHeader["X-Source"]).toEqual(["mine"]);
    expect(second).toMatchObject({
      status: 500,
      retried: 1,
      sourceBody: Buffer.from("in").toString("base64"),
    });
    const [failure] = told("/failure");
    expect(failure).toMatchObject({
      retried: 1,
      maxRetries: 1,
      notBefore: first.notBefore,
      createdAt: first.createdAt,
    });
    const entry = await eventually(
      () => client.dlq.listMessages(),
      (page) => page.messages.length === 1,
    );
    expect(failure.dlqId).toBe(entry.messages[0]?.dlqId);
  });

  test("a callback is a separate message with its own settings", async () => {
    const user = createUser();
    const { client } = user;
    const destination = await startVerifyingDestination(user, () => ({
      status: 201,
      headers: { "get-header": "got" },
    }));
    const headers = {
      "Upstash-Callback-Method": "PUT",
      "Upstash-Callback-Forward-X-Told": "yes",
      "Upstash-Callback-Retries": "2",
    };
    const { messageId } = await client.publish({
      url: `${destination.url}/work`,
      callback: `${destination.url}/told`,
      headers,
    });
    const arrivals = await destination.until(({ length }) => length === 2);
    const callback = arrivals.find(({ path }) => path === "/told");
    expect(callback).toMatchObject({
      method: "PUT",
      headers: { "x-told": "yes", "content-type": "application/json" },
    });
    const told = JSON.parse(String(callback?.body));
    expect(told).toMatchObject({
      status: 201,
      maxRetries: 3,
      sourceMessageId: messageId,
      header: { "Get-Header": ["got"] },
    });
    const id = String(callback?.headers["upstash-message-id"]);
    expect(id).not.toBe(messageId);
    expect(await client.messages.get(id)).toMatchObject({
      url: `${destination.url}/told`,
      maxRetries: 2,
      method: "PUT",
    });
  });

  test("a failure without retries is reported at once", async () => {
    const user = createUser();
    const destination = await startVerifyingDestination(user, ({ path }) =>
      path === "/work" ? { status: 489, headers: { "upstash-nonretryable-error": "true" } } : { status: 200 },
    );
    await user.client.publish({
      url: `${destination.url}/work`,
      failureCallback: `${destination.url}/failure`,
    });
    const arrivals = await destination.until(({ length }) => length === 2);
    expect(arrivals.map(({ path }) => path)).toEqual(["/work", "/failure"]);
    expect(JSON.parse(String(arrivals[1]?.body))).toMatchObject({ status: 489, maxRetries: 3 });
  });

  test.each(["Svc", "Upstash"])("a destination that is down counts as failed: brand %s", async (brand) => {
    const user = createUser();
    const destination = await startDestination();
    const response = await fetch(`${user.url}/v2/publish/http://127.0.0.1:1/`, {
      method: "POST",
      headers: {
        Authorization: `Bearer ${user.token}`,
        [`${brand}-Retries`]: "0",
        [`${brand}-Callback`]: `${destination.url}/callback`,
        [`${brand}-Failure-Callback`]: `${destination.url}/failure`,
      },
    });
    expect(response.ok).toBe(true);
    await destination.until(({ length }) => length === 2);
    for (const { body } of destination.arrivals) {
      const { status, body: reason } = JSON.parse(String(body));
      // Applications test for exactly this.
      expect(status >= 400 || status === -1).toBe(true);
      expect(decodeBase64(reason)).toMatch(/refused/);
    }
  });

  test("a redirect is not followed, and reported unchanged", async () => {
    const user = createUser();
    const destination = await startVerifyingDestination(user, ({ path }) =>
      path === "/work" ? { status: 300, headers: { location: "/elsewhere" } } : { status: 200 },
    );
    await user.client.publish({
      url: `${destination.url}/work`,
      retries: 0,
      callback: `${destination.url}/told`,
    });
    const arrivals = await destination.until(({ length }) => length === 2);
    const told = JSON.parse(String(arrivals.find(({ path }) => path === "/told")?.body));
    expect(told).toMatchObject({ status: 300, maxRetries: 0 });
    expect(told.body ?? "").toBe("");
    expect(arrivals.map(({ path }) => path)).not.toContain("/elsewhere");
  });
}
