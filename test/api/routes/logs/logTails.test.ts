import { request } from "node:http";
import type { IncomingMessage } from "node:http";
import { describe, expect, onTestFinished, test } from "vitest";
import { alarm } from "../../../../src/engine/clock/clock.ts";
import { limits } from "../../../../src/engine/core/values/limits.ts";
import type { TestServer } from "../../testServer.ts";
import { TestBrowser } from "../../../operations/console/browser.ts";
import { createTestServer, operatorPassword, otherToken, portOf, token } from "../../testServer.ts";

type Line = Record<string, unknown>;
type OpenTail = {
  status: number;
  lines: Line[];
  /** Whether the response has ended as it should. */
  isComplete(): boolean;
  leave(): void;
  response: IncomingMessage;
};

/** A server whose timers run 20 times as fast. */
const createFastServer = (options: Parameters<typeof createTestServer>[0] = {}): Promise<TestServer> =>
  createTestServer({ ...options, alarm: (after, wake) => alarm(after / 20, wake) });

type TailRequest = { query?: string; as?: string; headers?: Record<string, string>; isRead?: boolean };

async function openTail(
  { api }: TestServer,
  { query = "", as = token, headers = { authorization: `Bearer ${as}` }, isRead = true }: TailRequest = {},
): Promise<OpenTail> {
  const port = await portOf(api);
  return new Promise((resolve, reject) => {
    const path = `/v2/logs/tail${query}`;
    const outgoing = request({ host: "127.0.0.1", port, path, headers, agent: false }, (response) => {
      const lines: Line[] = [];
      let rest = "";
      const tail = {
        status: response.statusCode ?? 0,
        lines,
        isComplete: () => response.complete && response.readableEnded,
        leave: () => void outgoing.destroy(),
        response,
      };
      const receive = (chunk: Buffer): void => {
        const parts = (rest + chunk.toString()).split("\n");
        rest = parts.pop() ?? "";
        for (const part of parts) lines.push(JSON.parse(part) as Line);
      };
      response.on("error", () => undefined);
      if (isRead) response.on("data", receive);
      else response.pause();
      if (tail.status !== 200) response.once("end", () => (lines.push(JSON.parse(rest)), resolve(tail)));
      else if (isRead) response.once("data", () => resolve(tail));
      else resolve(tail);
    });
    outgoing.on("error", reject).end();
    onTestFinished(() => void outgoing.destroy());
  });
}

const publish = async (server: TestServer, headers: Record<string, string> = {}, as = token) => {
  server.clock.now += 10;
  const { body } = await server.ask("POST", "/v2/publish/https://a.example", {
    headers: { "svc-delay": "1h", ...headers },
    token: as,
    body: "hi",
  });
  return String(body.messageId);
};
/** Publishes messages with one request. */
async function publishMany(server: TestServer, count: number, body: string): Promise<string[]> {
  server.clock.now += 10;
  const item = { destination: "https://a.example", headers: { "svc-delay": "1h" }, body };
  const asked = { body: JSON.stringify(Array.from({ length: count }, () => item)) };
  const reply = await server.ask("POST", "/v2/batch", asked);
  return (reply.body as { messageId: string }[]).map(({ messageId }) => messageId);
}

const entriesOf = ({ lines }: OpenTail): string[] =>
  lines.flatMap(({ state, messageId }) =>
    typeof state === "string" ? [`${state} ${String(messageId)}`] : [],
  );

describe("a tail of the log", () => {
  test("shows what is written after it was opened, to each tail what passes its filter", async () => {
    const server = await createFastServer();
    await publish(server);
    const all = await openTail(server);
    const labelled = await openTail(server, { query: "?label=eu&state=CREATED" });
    expect([all.status, all.lines[0]]).toEqual([200, { heartbeat: server.clock.now }]);
    expect(all.response.headers).toMatchObject({
      "content-type": "application/x-ndjson; charset=utf-8",
      "cache-control": "no-store",
    });
    expect(all.response.headers).not.toHaveProperty("etag");
    const plain = await publish(server);
    const wanted = await publish(server, { "svc-label": "eu" });
    server.clock.now += 10;
    await server.ask("DELETE", `/v2/messages/${wanted}`);
    await expect.poll(() => entriesOf(all)).toContain(`CANCELLED ${wanted}`);
    expect(entriesOf(all)).toEqual([
      `CREATED ${plain}`,
      `CREATED ${wanted}`,
      `CANCEL_REQUESTED ${wanted}`,
      `CANCELLED ${wanted}`,
    ]);
    expect(entriesOf(labelled)).toEqual([`CREATED ${wanted}`]);
    const { body } = await server.ask("GET", "/v2/logs?order=earliestFirst&state=CREATED");
    expect(all.lines.filter(({ state }) => state === "CREATED")).toEqual(body.logs.slice(1));
  });

  test("shows each of many entries once, in order", async () => {
    const server = await createFastServer();
    const tail = await openTail(server);
    const ids = [...(await publishMany(server, 600, "hi")), ...(await publishMany(server, 600, "hi"))];
    await expect.poll(() => entriesOf(tail).length).toBe(1_200);
    expect(entriesOf(tail)).toEqual(ids.map((id) => `CREATED ${id}`));
  });

  test("shows nothing of another account", async () => {
    const server = await createFastServer();
    const [own, others] = [await openTail(server), await openTail(server, { as: otherToken })];
    const first = await publish(server);
    const second = await publish(server, {}, otherToken);
    await expect
      .poll(() => [entriesOf(own), entriesOf(others)])
      .toEqual([[`CREATED ${first}`], [`CREATED ${second}`]]);
  });

  test("shows that it is alive while there are no entries", async () => {
    const server = await createFastServer();
    const tail = await openTail(server);
    await expect.poll(() => tail.lines.length).toBeGreaterThan(2);
    expect(tail.lines.every(({ heartbeat }) => typeof heartbeat === "number")).toBe(true);
  });

  test("leaves entries out for a client that does not read, and says how many", async () => {
    const server = await createFastServer();
    const [slow, quick] = [await openTail(server, { isRead: false }), await openTail(server)];
    const count = 600;
    for (let n = 0; n < count; n += 100) {
      await publishMany(server, 100, "x".repeat(16 * 1024));
      await expect.poll(() => entriesOf(quick).length).toBe(n + 100);
    }
    let text = "";
    slow.response.on("data", (chunk: Buffer) => (text += chunk.toString()));
    slow.response.resume();
    const read = (): Line[] =>
      text.split("\n").flatMap((line, n, all) => (n === all.length - 1 ? [] : [JSON.parse(line) as Line]));
    await expect.poll(() => read().some((line) => "dropped" in line)).toBe(true);
    const shown = read().filter(({ state }) => state === "CREATED").length;
    expect(read().find((line) => "dropped" in line)).toMatchObject({ dropped: count - shown });
    const after = await publish(server);
    // Heartbeats may follow.
    const isShown = () => read().some(({ state, messageId }) => state === "CREATED" && messageId === after);
    await expect.poll(isShown).toBe(true);
  });
});

describe("a tail of the log is refused", () => {
  test("without the verb read, and with a filter that it does not have", async () => {
    const server = await createFastServer();
    const made = await server.ask("POST", "/v2/tokens", {
      body: JSON.stringify({ name: "p", verbs: ["publish"] }),
    });
    expect(await openTail(server, { as: made.body.token })).toMatchObject({ status: 403 });
    expect(await openTail(server, { as: "unknown" })).toMatchObject({ status: 401 });
    expect(await openTail(server, { query: "?fromDate=1" })).toMatchObject({ status: 400 });
  });

  test("above the limit of the account, until one of its clients has gone", async () => {
    const server = await createFastServer();
    const open = [];
    for (let n = 0; n < limits.tails; n++) open.push(await openTail(server));
    expect(await openTail(server)).toMatchObject({
      status: 503,
      lines: [{ error: `tails: the account has ${limits.tails} open on this server; close one` }],
    });
    expect(await openTail(server, { as: otherToken })).toMatchObject({ status: 200 });
    open[0]?.leave();
    await expect.poll(async () => (await openTail(server)).status).toBe(200);
  });

  test("by a client that has closed its connection, without a heartbeat in between", async () => {
    const server = await createTestServer({ alarm: () => () => undefined });
    const open = [];
    for (let n = 0; n < limits.tails; n++) open.push(await openTail(server));
    for (const tail of open) tail.leave();
    await expect.poll(async () => (await openTail(server)).status).toBe(200);
  });
});

/** Creates a token that may read. */
async function makeReader({ ask }: TestServer): Promise<{ reader: string; revoke(): Promise<unknown> }> {
  const { body } = await ask("POST", "/v2/tokens", { body: JSON.stringify({ name: "r", verbs: ["read"] }) });
  return { reader: body.token, revoke: () => ask("DELETE", `/v2/tokens/${body.tokenId}`) };
}

const expectEnded = async (tail: OpenTail, reason: string, code: string): Promise<void> => {
  await expect.poll(() => tail.lines.at(-1)).toEqual({ ended: expect.stringContaining(reason), code });
  await expect.poll(() => tail.isComplete()).toBe(true);
};

describe("a tail of the log ends with a reason", () => {
  test("when its token is revoked", async () => {
    const server = await createFastServer();
    const { reader, revoke } = await makeReader(server);
    const [revoked, other] = [await openTail(server, { as: reader }), await openTail(server)];
    await revoke();
    await expectEnded(revoked, "token: not valid", "unauthorized");
    expect(other.isComplete()).toBe(false);
  });

  test("when its token is revoked, also while wrong requests lock its client out", async () => {
    const server = await createFastServer();
    const { reader, revoke } = await makeReader(server);
    const revoked = await openTail(server, { as: reader });
    const ask = async (as: string): Promise<number> =>
      (await server.ask("GET", "/v2/logs", { token: as })).status;
    await expect.poll(() => ask("wrong")).toBe(429);
    await revoke();
    expect(await ask(reader)).toBe(429);
    await expectEnded(revoked, "token: not valid", "unauthorized");
    expect(await ask(reader)).toBe(429);
  });

  test("when another node has revoked its token, and this node was not notified", async () => {
    const silent = { onAccounts: { value: () => () => undefined } };
    const server = await createFastServer({ wrap: (store) => Object.create(store, silent) as typeof store });
    const { reader, revoke } = await makeReader(server);
    const revoked = await openTail(server, { as: reader });
    await revoke();
    expect((await server.ask("GET", "/v2/logs", { token: reader })).status, "the token is cached").toBe(200);
    await expectEnded(revoked, "token: not valid", "unauthorized");
  });

  test("when its token expires", async () => {
    const server = await createFastServer();
    const expiresAt = server.clock.now + 60_000;
    const asked = { body: JSON.stringify({ name: "r", verbs: ["read"], expires: expiresAt }) };
    const made = await server.ask("POST", "/v2/tokens", asked);
    const tail = await openTail(server, { as: made.body.token });
    server.clock.now = expiresAt;
    await expectEnded(tail, "token: expired", "unauthorized");
  });

  test("when its account is disabled, and none is opened until the account is enabled", async () => {
    const server = await createFastServer();
    const tail = await openTail(server);
    const change = (state: "active" | "passive") =>
      server.store.execute("changeAccount", { account: "acc_1", change: { state } });
    await change("passive");
    await expectEnded(tail, "account: disabled", "forbidden");
    expect((await openTail(server)).status).toBe(403);
    await change("active");
    expect((await openTail(server)).status).toBe(200);
  });

  test.each(["session", "operator session"])("when its %s of the console is ended", async (kind) => {
    const server = await createFastServer({ console: {} });
    const browser = new TestBrowser(server);
    if (kind === "session") await browser.logIn({ token });
    else {
      await browser.logIn({ operatorPassword });
      await browser.logIn({ switchTo: "acc_1" });
    }
    const cookie = [...browser.cookies].map(([name, value]) => `${name}=${value}`).join("; ");
    const headers = { host: "127.0.0.1:8080", "sec-fetch-site": "same-origin", cookie };
    const tail = await openTail(server, { headers });
    expect(tail.status).toBe(200);
    await browser.send("DELETE", "/console/session");
    await expectEnded(tail, "session: ended", "unauthorized");
  });

  test("a look at its token does not count as a failed attempt", async () => {
    const server = await createFastServer();
    const { reader, revoke } = await makeReader(server);
    const tails: OpenTail[] = [];
    for (let n = 0; n < limits.tails; n++) tails.push(await openTail(server, { as: reader }));
    await revoke();
    for (const tail of tails) await expectEnded(tail, "token: not valid", "unauthorized");
    const statuses: number[] = [];
    for (let at = 0; at < 20; at++)
      statuses.push((await server.ask("GET", "/v2/logs", { token: "wrong" })).status);
    expect(new Set(statuses)).toEqual(new Set([401]));
  });

  test("when the server stops, also if a client does not read", async () => {
    const server = await createFastServer();
    const tails = [await openTail(server), await openTail(server, { isRead: false })];
    await server.api.close();
    await expect
      .poll(() => tails[0]?.lines.at(-1))
      .toEqual({ ended: "the server is stopping", code: "stopping" });
    await expect.poll(() => tails[0]?.isComplete()).toBe(true);
  });
});
