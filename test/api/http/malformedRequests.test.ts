import { once } from "node:events";
import { connect } from "node:net";
import { describe, expect, test } from "vitest";
import type { Store } from "../../../src/engine/store/store.ts";
import { createTestServer, token } from "../testServer.ts";
import { listen, parseReply, request, send } from "../wire.ts";
import { codeFields } from "../errorFields.ts";

const authorization = `Authorization: Bearer ${token}`;

const codes: Readonly<Record<number, string>> = {
  400: "invalid",
  404: "not-found",
  405: "method-not-allowed",
  413: "too-large",
  431: "headers-too-large",
};

describe("over a connection", () => {
  const head = `POST /v2/publish/https://e.example HTTP/1.1\r\nHost: x\r\n${authorization}\r\n`;

  test.each([
    ["no HTTP", "\x00\x01\x02\r\n\r\n", 400],
    ["an unknown method", request("BREW / HTTP/1.1"), 400],
    ["an unknown version", request("GET / HTTP/3.0"), 400],
    ["invalid bytes in the target", request("GET /\xe4\xff HTTP/1.1"), 400],
    ["a header without a colon", "GET / HTTP/1.1\r\nHost x\r\n\r\n", 400],
    ["a negative length", `${head}Content-Length: -1\r\n\r\n`, 400],
    ["a length and chunks", `${head}Content-Length: 2\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n`, 400],
    ["malformed chunks", `${head}Transfer-Encoding: chunked\r\n\r\nzz\r\n`, 400],
    ["malformed encoding in a path", request("GET /v2/messages/%zz HTTP/1.1", [authorization]), 400],
    [
      "a very long name in a path",
      request(`GET /v2/messages/${"x".repeat(1_000)} HTTP/1.1`, [authorization]),
      404,
    ],
    ["headers of more than 64 KiB", `GET /v2/keys HTTP/1.1\r\nX-A: ${"a".repeat(66_000)}\r\n\r\n`, 431],
    ["a target of more than 64 KiB", `GET /${"a".repeat(66_000)} HTTP/1.1\r\n\r\n`, 431],
    ["a declared body that is too large", `${head}Content-Length: 10485761\r\n\r\nabc`, 413],
    ["CONNECT", "CONNECT e.example:443 HTTP/1.1\r\nHost: e.example:443\r\n\r\n", 405],
    ["a method that only some servers know", request("PURGE /v2/keys HTTP/1.1"), 405],
    ["another such method", request("MKCOL /nowhere HTTP/1.1"), 404],
    ["QUERY", request("QUERY /v2/keys HTTP/1.1"), 405],
    ["TRACE", request("TRACE /v2/keys HTTP/1.1"), 405],
    ["OPTIONS of the server", request("OPTIONS * HTTP/1.1"), 404],
  ])("%s is answered in JSON", async (_, bytes, status) => {
    const reply = parseReply(await send(await listen(await createTestServer()), bytes));
    expect(reply.status).toBe(status);
    expect(reply.head).toMatch(/content-type: application\/json/i);
    expect(JSON.parse(reply.body)).toEqual({
      error: expect.stringMatching(/^\w+: \S/),
      ...codeFields(codes[status] ?? ""),
    });
  });

  test("a chunked body that exceeds the limit is refused with the limit", async () => {
    const chunk = `100000\r\n${"a".repeat(0x100000)}\r\n`;
    const reply = parseReply(
      await send(
        await listen(await createTestServer()),
        `${head}Transfer-Encoding: chunked\r\n\r\n${chunk.repeat(11)}`,
      ),
    );
    expect(reply).toMatchObject({ status: 413 });
    expect(JSON.parse(reply.body).error).toContain("10485760");
  });

  test("a request needs no Host, and a requested upgrade is ignored", async () => {
    const port = await listen(await createTestServer());
    expect(parseReply(await send(port, "GET /v2/health HTTP/1.1\r\nConnection: close\r\n\r\n")).status).toBe(
      200,
    );
    expect(
      parseReply(
        await send(port, "GET /v2/health HTTP/1.1\r\nConnection: close, Upgrade\r\nUpgrade: h2c\r\n\r\n"),
      ).status,
    ).toBe(200);
  });

  test("a stopping server finishes running requests and refuses later ones on their connection", async () => {
    let release = (): void => {};
    const held = new Promise<void>((resolve) => (release = resolve));
    let arrived = (): void => {};
    const running = new Promise<void>((resolve) => (arrived = resolve));
    const slow = (store: Store): Store => ({
      ...store,
      execute: async (name, input) => {
        arrived();
        await held;
        return store.execute(name, input);
      },
    });
    const server = await createTestServer({ wrap: slow });
    const port = await listen(server);
    const connection = once(server.api.server, "connection");
    const socket = connect(port, "127.0.0.1");
    const received: string[] = [];
    socket.on("data", (chunk: Buffer) => received.push(chunk.toString()));
    socket.write(`${head}Content-Length: 0\r\n\r\n`);
    await running;
    const closed = server.api.close();
    socket.write(request("GET /v2/keys HTTP/1.1", [authorization]));
    const [accepted] = await connection;
    while (!accepted.isPaused()) await new Promise((resolve) => setImmediate(resolve));
    release();
    await once(socket, "close");
    await closed;
    const statuses = [...received.join("").matchAll(/HTTP\/1\.1 (\d+)/g)].map(([, status]) => status);
    expect(statuses).toEqual(["200", "503"]);
    const stopping = { error: "the server is stopping; retry later", ...codeFields("stopping") };
    expect(received.join("")).toContain(JSON.stringify(stopping));
  });
});

describe("a body that waits for 100 Continue", () => {
  const head =
    "POST /v2/publish/https://e.example HTTP/1.1\r\nHost: x\r\nExpect: 100-continue\r\nContent-Length: 3\r\n";

  test("is requested once the token is verified", async () => {
    const server = await createTestServer();
    const socket = connect(await listen(server), "127.0.0.1");
    socket.write(`${head}${authorization}\r\n\r\n`);
    const [first] = await once(socket, "data");
    expect(String(first)).toBe("HTTP/1.1 100 Continue\r\n\r\n");
    socket.write("abc");
    const [second] = await once(socket, "data");
    expect(String(second)).toMatch(/^HTTP\/1.1 200 /);
    socket.destroy();
    expect(Buffer.from(server.delivery().message.body).toString()).toBe("abc");
  });

  test("is not requested if the request is refused", async () => {
    const port = await listen(await createTestServer());
    expect(parseReply(await send(port, `${head}Authorization: Bearer wrong\r\n\r\n`)).status).toBe(401);
    const large = head.replace("Length: 3", "Length: 99999999");
    expect(parseReply(await send(port, `${large}${authorization}\r\n\r\n`)).status).toBe(413);
  });
});

test("requests have timeouts, and the number of header lines is not limited", async () => {
  const { api } = await createTestServer();
  const { headersTimeout, requestTimeout, keepAliveTimeout, maxHeadersCount } = api.server;
  expect({ headersTimeout, requestTimeout, keepAliveTimeout, maxHeadersCount }).toEqual({
    headersTimeout: 30_000,
    requestTimeout: 300_000,
    keepAliveTimeout: 72_000,
    maxHeadersCount: 0,
  });
});
