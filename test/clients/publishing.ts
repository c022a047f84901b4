import { custom, QstashError, resend } from "@upstash/qstash";
import { expect, test } from "vitest";
import type { TestUser } from "./clientTestServer.ts";
import { startDestination } from "../server/waypost.ts";
import {
  eventually,
  delayedDestination,
  startHeldDestination,
  startVerifyingDestination,
} from "./clientTestServer.ts";

const anId = expect.stringMatching(/^msg_/);

/** Tests publishes with the published client. */
export function publishing(createUser: () => TestUser): void {
  testDelivery(createUser);
  testProviders(createUser);
  testResponses(createUser);
  testRefusals(createUser);
}

function testDelivery(createUser: () => TestUser): void {
  test("a publishJSON arrives with its headers, and the Receiver verifies it", async () => {
    const user = createUser();
    const destination = await startVerifyingDestination(user);
    const url = `${destination.url}/api//deep/?a=1&b=%20x`;
    const body = { hello: "wörld" };
    const { messageId } = await user.client.publishJSON({
      url,
      body,
      headers: { "X-Mine": "yes" },
      label: "first",
    });
    const arrival = await destination.first();
    expect(arrival).toMatchObject({
      method: "POST",
      path: "/api//deep/?a=1&b=%20x",
      body: Buffer.from(JSON.stringify(body)),
    });
    expect(arrival.headers).toMatchObject({
      "content-type": "application/json",
      "x-mine": "yes",
      "user-agent": "Upstash-QStash",
      "upstash-message-id": messageId,
      "upstash-retried": "0",
    });
    expect(Object.keys(arrival.headers).filter((name) => name.includes("telemetry"))).toEqual([]);
  });

  test("the Receiver refuses another body, another address and another key", async () => {
    const user = createUser();
    const destination = await startVerifyingDestination(user);
    await user.client.publish({ url: destination.url, body: "mine" });
    const signature = String((await destination.first()).headers["upstash-signature"]);
    expect(await user.receiver.verify({ signature, body: "mine" })).toBe(true);
    await expect(user.receiver.verify({ signature, body: "mine " })).rejects.toThrow(/body hash/);
    await expect(
      user.receiver.verify({ signature, body: "mine", url: "https://example.com" }),
    ).rejects.toThrow(/subject/);
    await expect(createUser().receiver.verify({ signature, body: "mine" })).rejects.toThrow(/signature/);
  });

  test("the client's headers are delivered, unless the message has them", async () => {
    const user = createUser();
    const destination = await startVerifyingDestination(user);
    const client = user.clientWith({
      headers: { "X-All": "all", "X-Both": "all", "Upstash-Retries": "1" },
      enableTelemetry: true,
    });
    const headers = { "X-Both": "one", "Upstash-Forward-X-Prefixed": "prefixed" };
    const { messageId } = await client.publish({ url: destination.url, headers });
    expect((await destination.first()).headers).toMatchObject({
      "x-all": "all",
      "x-both": "one",
      "x-prefixed": "prefixed",
    });
    const message = await client.messages.get(messageId);
    expect(message.maxRetries).toBe(1);
    expect(message.header).toEqual({ "X-All": ["all"], "X-Both": ["one"], "X-Prefixed": ["prefixed"] });
  });

  test("a message cannot replace Waypost's headers; other names of the brand are delivered", async () => {
    const user = createUser();
    const destination = await startVerifyingDestination(user);
    const forward = {
      "Upstash-Signature": "forged",
      "Upstash-Message-Id": "forged",
      "Upstash-Retried": "7",
      "Upstash-Region": "forged",
      Host: "forged",
      "Content-Length": "1",
      "Upstash-Workflow-RunId": "forged",
      "Upstash-Workflow-CreatedAt": "forged",
      "Upstash-Workflow-Invoke-Count": "2",
      "Upstash-Workflow-Is-Failure": "true",
      "Upstash-Label": "seen",
      "Upstash-Workflow-Sdk-Version": "1",
      "Upstash-Workflow-Unknown-Sdk": "true",
      "Upstash-Workflow-Callback": "true",
    };
    const headers = Object.fromEntries(
      Object.entries(forward).map(([name, value]) => [`Upstash-Forward-${name}`, value]),
    );
    const { messageId } = await user.client.publish({ url: destination.url, body: "whole", headers });
    const arrival = await destination.first();
    expect(arrival.headers).toMatchObject({
      "upstash-message-id": messageId,
      "upstash-retried": "0",
      host: new URL(destination.url).host,
      "content-length": "5",
      "upstash-workflow-invoke-count": "2",
      "upstash-workflow-is-failure": "true",
      "upstash-label": "seen",
      "upstash-workflow-sdk-version": "1",
      "upstash-workflow-unknown-sdk": "true",
      "upstash-workflow-callback": "true",
    });
    expect(JSON.stringify(arrival.headers)).not.toContain("forged");
  });

  test("a form and bytes that are not text arrive unchanged", async () => {
    const user = createUser();
    const destination = await startDestination();
    const bytes = Buffer.from([0, 0xff, 0xfe, 10, 13]);
    await user.client.publish({
      url: `${destination.url}/bytes`,
      body: new Blob([bytes], { type: "image/x-own" }),
    });
    await user.client.publish({
      url: `${destination.url}/form`,
      body: new URLSearchParams({ a: "1 2", b: "ü" }),
    });
    await destination.until(({ length }) => length === 2);
    const at = (wanted: string) => destination.arrivals.find(({ path }) => path === wanted);
    expect(at("/bytes")).toMatchObject({ body: bytes, headers: { "content-type": "image/x-own" } });
    expect(at("/form")).toMatchObject({ body: Buffer.from("a=1+2&b=%C3%BC") });
    expect(at("/form")?.headers["content-type"]).toMatch(/^application\/x-www-form-urlencoded/);
  });

  test.each(["GET", "POST", "PUT", "PATCH", "DELETE"] as const)(
    "the delivery has the method %s",
    async (method) => {
      const user = createUser();
      const destination = await startVerifyingDestination(user);
      await user.client.publish({ url: `${destination.url}/m`, method, notBefore: 1_000_000_000 });
      expect(await destination.first()).toMatchObject({ method, path: "/m" });
    },
  );

  test("an attempt fails if the destination does not answer in time", async () => {
    const { client } = createUser();
    const held = await startHeldDestination();
    const { messageId } = await client.publish({ url: held.url, timeout: 1, retries: 0 });
    const [input] = await eventually(
      async () => (await client.dlq.listMessages()).messages,
      ({ length }) => length === 1,
    );
    expect(input).toMatchObject({ messageId, error: expect.any(String) });
    expect(input?.responseStatus).toBeUndefined();
  });

  test("a batch is delivered, and its results are in order", async () => {
    const user = createUser();
    const destination = await startVerifyingDestination(user);
    const results = await user.client.batchJSON([
      { url: `${destination.url}/one`, body: { n: 1 }, headers: { "X-Number": "1" } },
      { url: `${destination.url}/two`, body: { n: 2 }, retries: 0 },
    ]);
    const arrivals = await destination.until(({ length }) => length === 2);
    const ids = ["/one", "/two"].map(
      (path) => arrivals.find((one) => one.path === path)?.headers["upstash-message-id"],
    );
    expect(results).toEqual(ids.map((messageId) => expect.objectContaining({ messageId })));
    expect(arrivals.find(({ path }) => path === "/one")).toMatchObject({
      headers: { "x-number": "1", "content-type": "application/json" },
      body: Buffer.from('{"n":1}'),
    });
  });
}

function testProviders(createUser: () => TestUser): void {
  test("a request for a provider of language models is sent to the provider", async () => {
    const user = createUser();
    const destination = await startVerifyingDestination(user, ({ path }) => ({
      status: 200,
      body: path === "/told" ? "" : '{"choices":[]}',
    }));
    const provider = custom({ baseUrl: destination.url, token: "of-the-provider" });
    const callback = `${destination.url}/told`;
    await user.client.publishJSON({ api: { name: "llm", provider }, body: { messages: [] }, callback });
    const arrivals = await destination.until(({ length }) => length === 2);
    expect(arrivals[0]).toMatchObject({
      method: "POST",
      path: "/v1/chat/completions",
      body: Buffer.from('{"messages":[]}'),
      headers: { authorization: "Bearer of-the-provider", "content-type": "application/json" },
    });
    expect(JSON.parse(String(arrivals[1]?.body))).toMatchObject({
      status: 200,
      body: Buffer.from('{"choices":[]}').toString("base64"),
    });
  });

  test("an e-mail is sent to its provider, also in a batch and through a queue", async () => {
    const { client } = createUser();
    const mail = {
      api: { name: "email", provider: resend({ token: "of-the-provider" }) },
      body: { to: "you" },
      delay: 600,
    } as const;
    const results = [await client.publishJSON({ ...mail }), ...(await client.batchJSON([{ ...mail }]))];
    results.push(await client.queue({ queueName: "mail" }).enqueueJSON({ ...mail }));
    for (const result of results) {
      expect(await client.messages.get("messageId" in result ? result.messageId : "")).toMatchObject({
        url: "https://api.resend.com/emails",
        body: '{"to":"you"}',
        header: { Authorization: ["Bearer of-the-provider"], "Content-Type": ["application/json"] },
      });
    }
  });

  test("a request for a language model of the service itself is refused", async () => {
    const { client } = createUser();
    const asking = client.publishJSON({ api: { name: "llm" }, body: {}, callback: "https://example.com" });
    await expect(asking).rejects.toMatchObject({
      status: expect.toSatisfy((status: number) => status === 400 || status === 404),
    });
  });
}

function testResponses(createUser: () => TestUser): void {
  test.each([
    "https://example.com",
    "https://oz.requestcatcher.com/?foo=bar",
    "https://example.com/123/?asdasd=ooo",
  ])("the destination %s is kept byte for byte", async (url) => {
    const { client } = createUser();
    const { messageId } = await client.publish({ url, delay: 60 });
    expect((await client.messages.get(messageId)).url).toBe(url);
  });

  test("publishes with the same deduplication id or content create one message", async () => {
    const { client } = createUser();
    const byId = { ...delayedDestination, deduplicationId: "once" };
    const first = await client.publish(byId);
    expect(first).toEqual({ messageId: anId, url: expect.any(String) });
    expect(await client.publish(byId)).toEqual({ ...first, deduplicated: true });
    const byContent = { ...delayedDestination, body: "same", contentBasedDeduplication: true };
    const second = await client.publish(byContent);
    expect(await client.publish(byContent)).toEqual({ ...second, deduplicated: true });
    expect((await client.publish({ ...byContent, body: "other" })).deduplicated).toBeUndefined();
  });

  test("a batch accepts messages of every kind and names a refused one", async () => {
    const { client } = createUser();
    await client.urlGroups.addEndpoints({
      name: "pair",
      endpoints: [{ url: "https://a.example" }, { url: "https://b.example" }],
    });
    const results = await client.batch([
      { ...delayedDestination, body: "plain" },
      { urlGroup: "pair", body: "to both", delay: 60 },
      { ...delayedDestination, queueName: "line" },
      { url: "https://example.com", retries: 1_000_000 },
    ]);
    expect(results).toEqual([
      expect.objectContaining({ messageId: anId }),
      [
        { messageId: anId, url: "https://a.example" },
        { messageId: anId, url: "https://b.example" },
      ],
      expect.objectContaining({ messageId: anId }),
      { error: expect.stringMatching(/retries/i), code: "limit-exceeded" },
    ]);
    const [, , queued] = results;
    expect(await client.messages.get(queued && "messageId" in queued ? queued.messageId : "")).toMatchObject({
      queueName: "line",
    });
  });

  test("the timeout may be a bare number of seconds, as other clients send it", async () => {
    const { client } = createUser();
    const ids = await Promise.all(
      [{ headers: { "Upstash-Timeout": "45" } }, { timeout: 45 }, { timeout: "45s" as const }].map((one) =>
        client.publish({ ...delayedDestination, ...one }),
      ),
    );
    for (const { messageId } of ids) {
      const { logs } = await client.logs({ filter: { messageId } });
      expect(logs).toMatchObject([{ timeout: 45_000 }]);
    }
  });

  test("redacted parts are delivered and never shown", async () => {
    const user = createUser();
    const { client } = user;
    const destination = await startVerifyingDestination(user);
    const hidden = {
      body: "secret body",
      headers: { "X-Key": "secret key", "X-Open": "open" },
      redact: { body: true, header: ["x-key"] },
    } as const;
    const { messageId } = await client.publish({
      url: destination.url,
      ...hidden,
      redact: { body: true, header: ["x-key"] },
    });
    expect(await destination.first()).toMatchObject({
      headers: { "x-key": "secret key" },
      body: Buffer.from("secret body"),
    });
    const message = await client.messages.get(messageId);
    const redacted = expect.stringMatching(/^REDACTED:[0-9a-f]{64}$/);
    expect(message).toMatchObject({ body: redacted, header: { "X-Key": [redacted], "X-Open": ["open"] } });
    const { logs } = await eventually(
      () => client.logs({ filter: { messageId } }),
      (page) => page.logs[0]?.state === "DELIVERED",
    );
    expect(JSON.stringify(logs)).not.toContain("secret");
    const all = await client.publish({
      ...delayedDestination,
      headers: { "X-Key": "secret" },
      redact: { header: true },
    });
    expect((await client.messages.get(all.messageId)).header).toEqual({ "X-Key": [redacted] });
  });
}

function testRefusals(createUser: () => TestUser): void {
  test.each([
    { name: "too many retries", request: { retries: 1_000_000 }, status: 412, text: /retries/ },
    { name: "too long a delay", request: { delay: "4000d" }, status: 412, text: /delay/ },
    { name: "an invalid retry delay", request: { retryDelay: "rm -rf" }, status: 400, text: /retry-delay/ },
    {
      name: "a callback that is not a URL",
      request: { callback: "example.com" },
      status: 400,
      text: /callback/,
    },
    {
      name: "a delay that is not a duration",
      request: { delay: "soon" as "1s" },
      status: 400,
      text: /delay/,
    },
    {
      name: "a rate period beyond a week",
      request: { flowControl: { key: "k", rate: 1, period: "8d" } },
      status: 400,
      text: /period/,
    },
  ] as const)("$name is refused with an error that names it", async ({ request, status, text }) => {
    const publishing = createUser().client.publish({ url: "https://example.com", ...request });
    const error = await publishing.then(
      () => null,
      (reason: unknown) => reason,
    );
    expect(error).toBeInstanceOf(QstashError);
    expect(error).toMatchObject({ status });
    const { error: said } = JSON.parse(error instanceof Error ? error.message : "{}");
    expect(said).toMatch(new RegExp(text.source, "i"));
  });

  test("a batch is refused with the status of its first message if all are refused", async () => {
    const { client } = createUser();
    const batch = client.batch([{ url: "https://example.com", retries: 1_000_000 }]);
    await expect(batch).rejects.toMatchObject({ status: 412, message: expect.stringMatching(/retries/i) });
  });
}
