import { fc } from "../../seeds.ts";
import { connect } from "node:net";
import type { Socket } from "node:net";
import { describe, expect, test } from "vitest";
import { routes } from "../../../src/operations/routes.ts";
import { settingRows } from "../../../src/api/settings/table.ts";
import { errorCodes } from "../../../src/engine/core/values/errors.ts";
import { createTestServer, token } from "../testServer.ts";
import { createRawClient, listen, parseReply, send } from "../wire.ts";

const oddities = [
  "%zz",
  "%00",
  "%",
  "%ff",
  "..",
  "//",
  "?",
  "&",
  "=",
  "#",
  ";",
  "\\",
  "'",
  '"',
  "[",
  "{",
  "\ud800",
  "\u0000",
  "-1",
  "1e999",
  "NaN",
  "9".repeat(40),
  "__proto__",
  "constructor",
  "msg_1",
  "1800000000000-000000000",
];
const odd = fc.oneof(
  fc.constantFrom(...oddities),
  fc.string({ unit: "binary", maxLength: 20 }),
  fc.string({ maxLength: 20 }),
);
const oddText = fc.array(odd, { maxLength: 4 }).map((parts) => parts.join(""));
const settingName = fc
  .tuple(
    fc.constantFrom("svc-", "upstash-"),
    fc.constantFrom("", "callback-", "failure-callback-", "forward-"),
    fc.constantFrom(...Object.keys(settingRows), "x", ""),
  )
  .map((parts) => parts.join(""));
const parameterName = fc.oneof(
  settingName,
  oddText,
  fc.constantFrom(
    "cursor",
    "count",
    "messageIds",
    "dlqIds",
    "url",
    "label",
    "fromDate",
    "state",
    "order",
    "svc_token",
  ),
);
const query = fc
  .array(fc.tuple(parameterName, fc.oneof(oddText, fc.nat().map(String))), { maxLength: 4 })
  .map((pairs) => pairs.map(([name, value]) => `${name}=${value}`).join("&"));
const path = fc.oneof(
  fc
    .tuple(fc.constantFrom(...routes.map((row) => row.path)), oddText, oddText)
    .map(([row, inside, after]) => row.replace(/\{\w+\}/, inside) + after),
  oddText.map((rest) => `/v2/publish/https://e.example/${rest}`),
  oddText.map((rest) => `/${rest}`),
);
const headers = fc.dictionary(
  fc.oneof(settingName, fc.constantFrom("content-type", "content-encoding", "x-forwarded-for", "connection")),
  oddText,
  { maxKeys: 4 },
);
const body = fc.oneof(
  fc.constant(""),
  oddText,
  fc.json(),
  fc
    .array(
      fc.record(
        { destination: oddText, headers: fc.dictionary(settingName, oddText), body: oddText, queue: oddText },
        { requiredKeys: [] },
      ),
      { maxLength: 3 },
    )
    .map((items) => JSON.stringify(items)),
);
const method = fc.constantFrom("GET", "POST", "DELETE", "PUT", "PATCH");

/** Returns a request target made only of the bytes that a target may contain. */
const targetOf = (text: string): string =>
  Buffer.from(text.toWellFormed())
    .toString("latin1")
    .replaceAll(/[^\x21-\x7e]/g, (letter) => (letter === "\0" ? "%00" : encodeURIComponent(letter)));
const valueOf = (text: string): string =>
  Buffer.from(text.toWellFormed())
    .toString("latin1")
    .replaceAll(/[^\t\x20-\x7e\x80-\xff]/g, "");

const listCodes = (status: number): string[] =>
  Object.entries(errorCodes).flatMap(([code, row]) => (row.status === status ? [code] : []));

describe("any request", () => {
  test("to any route is answered in JSON, and never with an internal error", async () => {
    const server = await createTestServer({ trustProxy: true });
    const { lines } = server;
    const { ask, close } = createRawClient(await listen(server), token);
    const request = fc.record({ method, path, query, headers, body });
    await fc.assert(
      fc.asyncProperty(request, async ({ method, path, query, headers, body }) => {
        const sent = Object.fromEntries(
          Object.entries(headers).map(([name, value]) => [name || "x", valueOf(value)]),
        );
        const { status, text } = await ask({
          method,
          target: targetOf(`${path}?${query}`),
          headers: sent,
          body: Buffer.from(body),
        });
        expect(status, JSON.stringify(lines.at(-1))).toBeLessThan(500);
        const words = expect.stringMatching(/\S/);
        const code = expect.toBeOneOf(listCodes(status));
        const refusal = /^\/v2\/(svc|qstash|admin)(\/|$)/.test(path)
          ? { code: words, message: words, errorCode: code }
          : { error: words, code };
        if (status >= 400) {
          const { docs, ...refused } = JSON.parse(text) as Record<string, string>;
          expect(refused).toEqual(refusal);
          expect([undefined, `/docs/errors#${refused["errorCode"] ?? refused["code"]}`]).toContain(docs);
        }
        lines.splice(0);
      }),
      { numRuns: 1_500 },
    );
    close();
  });

  test("of any bytes over a connection leaves the server working", async () => {
    const port = await listen(await createTestServer());
    const head = `POST /v2/publish/https://e.example HTTP/1.1\r\nAuthorization: Bearer ${token}\r\n`;
    const bytes = fc.oneof(
      fc.uint8Array({ maxLength: 200 }),
      fc
        .uint8Array({ maxLength: 100 })
        .map((junk) => Buffer.concat([Buffer.from("GET /v2/"), junk, Buffer.from(" HTTP/1.1\r\n\r\n")])),
      fc
        .uint8Array({ maxLength: 100 })
        .map((junk) =>
          Buffer.concat([
            Buffer.from(head),
            junk,
            Buffer.from("\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"),
          ]),
        ),
      fc
        .uint8Array({ maxLength: 100 })
        .map((junk) => Buffer.concat([Buffer.from(`${head}Transfer-Encoding: chunked\r\n\r\n`), junk])),
    );
    await fc.assert(
      fc.asyncProperty(bytes, async (sent) => {
        const received = await sendAndEnd(port, Buffer.from(sent));
        for (const [, status] of received.matchAll(/HTTP\/1\.1 (\d{3})/g))
          expect(Number(status)).toBeLessThan(500);
      }),
      { numRuns: 300 },
    );
    expect(parseReply(await send(port, "GET /v2/health HTTP/1.1\r\nConnection: close\r\n\r\n")).status).toBe(
      200,
    );
  });

  test("that stores something leaves it readable by its name", async () => {
    const { ask, close } = createRawClient(await listen(await createTestServer()), token);
    await fc.assert(
      fc.asyncProperty(oddText, fc.uint8Array({ maxLength: 50 }), async (rest, body) => {
        const url = `https://e.example/${targetOf(rest)}`;
        const published = await ask({ method: "POST", target: `/v2/publish/${url}`, body });
        expect(published).toMatchObject({ status: 200 });
        const read = JSON.parse(
          (await ask({ method: "GET", target: `/v2/messages/${JSON.parse(published.text).messageId}` })).text,
        );
        expect(read.url).toBe(url);
        const stored =
          read.bodyBase64 === undefined
            ? Buffer.from(read.body ?? "")
            : Buffer.from(read.bodyBase64, "base64");
        expect(stored).toEqual(Buffer.from(body));
      }),
      { numRuns: 300 },
    );
    close();
  });
});

/** Sends bytes, half-closes the connection, and returns the response. */
const sendAndEnd = (port: number, bytes: Buffer): Promise<string> =>
  new Promise((resolve) => {
    const received: Buffer[] = [];
    const socket: Socket = connect(port, "127.0.0.1", () => socket.end(bytes));
    socket.on("data", (chunk: Buffer) => received.push(chunk));
    socket.on("error", () => {});
    socket.on("close", () => resolve(Buffer.concat(received).toString("latin1")));
  });
