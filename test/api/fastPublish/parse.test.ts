import { createServer } from "node:http";
import { connect } from "node:net";
import type { AddressInfo } from "node:net";
import { fc } from "../../seeds.ts";
import { describe, expect, onTestFinished, test } from "vitest";
import type { PlainHead } from "../../../src/api/fastPublish/parse.ts";
import { parsePlainHead } from "../../../src/api/fastPublish/parse.ts";

const line = "POST /v2/publish/https://e.example/a?b=%20 HTTP/1.1";
const read = (text: string): PlainHead | null => parsePlainHead(Buffer.from(text, "latin1"));
const head = (...fields: string[]): string => [line, ...fields, "", ""].join("\r\n");

test("a plain head is read as sent", () => {
  const text = head(
    "Host: x",
    "authorization:  Bearer a \t",
    "X-Latin: \xe9",
    "Empty:",
    "Content-Length: 12",
    "x-a: 1",
    "X-A: 2",
  );
  expect(read(`${text}{"a":1}`)).toEqual({
    method: "POST",
    target: "/v2/publish/https://e.example/a?b=%20",
    rawHeaders: [
      ...["Host", "x", "authorization", "Bearer a", "X-Latin", "\xe9", "Empty", "", "Content-Length", "12"],
      ...["x-a", "1", "X-A", "2"],
    ],
    authorization: "Bearer a",
    headBytes: text.length,
    length: 12,
    keepsAlive: true,
  });
});

test.each([
  ["", true],
  ["Connection: keep-alive", true],
  ["connection: Keep-Alive", true],
  ["Connection: close", false],
  ["CONNECTION: CLOSE", false],
])("with the Connection header %j the connection stays open: %s", (field, isKept) => {
  expect(read(head("Content-Length: 0", ...(field ? [field] : [])))?.keepsAlive).toBe(isKept);
});

describe("not plain", () => {
  test.each([
    ["nothing", ""],
    ["an incomplete head", `${line}\r\nContent-Length: 0\r\n`],
    ["another method", head("Content-Length: 0").replace("POST", "PUT")],
    ["a method in lower case", head("Content-Length: 0").replace("POST", "post")],
    ["an older version", head("Content-Length: 0").replace("1.1", "1.0")],
    ["two blanks", head("Content-Length: 0").replace("POST ", "POST  ")],
    ["a blank in the target", head("Content-Length: 0").replace("%20", " ")],
    ["a character outside ASCII in the target", head("Content-Length: 0").replace("%20", "\xe9")],
    ["a target in absolute form", head("Content-Length: 0").replace("/v2", "http://x/v2")],
    ["a line before it", `\r\n${head("Content-Length: 0")}`],
    ["no length", head("Host: x")],
    ["two lengths", head("Content-Length: 1", "content-length: 1")],
    ["a list of lengths", head("Content-Length: 1, 1")],
    ["a length with a sign", head("Content-Length: +1")],
    ["a negative length", head("Content-Length: -1")],
    ["a hexadecimal length", head("Content-Length: 0x1")],
    ["an empty length", head("Content-Length:")],
    ["a length with too many digits", head("Content-Length: 9999999999")],
    ["chunks", head("Transfer-Encoding: chunked")],
    ["chunks and a length", head("Content-Length: 1", "transfer-encoding: chunked")],
    ["an unknown encoding", head("Content-Length: 1", "Transfer-Encoding: identity")],
    ["an expectation", head("Content-Length: 1", "Expect: 100-continue")],
    ["an upgrade", head("Content-Length: 1", "Upgrade: websocket")],
    ["a Connection header with another option", head("Content-Length: 1", "Connection: keep-alive, x-a")],
    ["two connections", head("Content-Length: 1", "Connection: close", "Connection: close")],
    ["a Proxy-Connection header", head("Content-Length: 1", "Proxy-Connection: close")],
    ["two tokens", head("Content-Length: 1", "Authorization: a", "authorization: b")],
    ["a blank before the colon", head("Content-Length : 1", "Content-Length: 1")],
    ["a folded line", head("Content-Length: 1", "X: a", " b")],
    ["a line without a colon", head("Content-Length: 1", "X")],
    ["a line without a name", head("Content-Length: 1", ": x")],
    ["a name with a blank", head("Content-Length: 1", "X Y: x")],
    ["a name with a character outside ASCII", head("Content-Length: 1", "\xe9: x")],
    ["a line that ends with LF", head("Content-Length: 1", "X: a\nTransfer-Encoding: chunked")],
    ["a line that ends with CR", head("Content-Length: 1", "X: a\rTransfer-Encoding: chunked")],
    ["an end of line in the request line", head("Content-Length: 1").replace("%20", "\n")],
    ["NUL", head("Content-Length: 1", "X: \0")],
    ["DEL", head("Content-Length: 1", "X: \x7f")],
    ["another control character", head("Content-Length: 1", "X: \x0b")],
  ])("%s", (_case, text) => {
    expect(read(text)).toBeNull();
  });
});

type Seen = { method: string; url: string; rawHeaders: string[]; body: string; isKept: boolean };

/**
 * Returns a function that shows what Node's own parser reads as the first request in these bytes. Null means
 * that it reads none, or that more bytes follow.
 */
async function nodeReader(): Promise<(bytes: Buffer) => Promise<Seen | null>> {
  let seen: Seen[] = [];
  const server = createServer({ requireHostHeader: false }, (request, response) => {
    const pieces: Buffer[] = [];
    request.on("data", (piece: Buffer) => pieces.push(piece));
    request.on("end", () => {
      const { method = "", url = "", rawHeaders } = request;
      seen.push({
        method,
        url,
        rawHeaders,
        body: Buffer.concat(pieces).toString("latin1"),
        isKept: response.shouldKeepAlive,
      });
      response.end();
    });
  });
  server.maxHeadersCount = 0;
  server.on("checkExpectation", (_request, response) => response.end());
  server.on("clientError", (_error, socket) => socket.destroy());
  await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
  onTestFinished(() => void server.close());
  const { port } = server.address() as AddressInfo;
  return async (bytes) => {
    seen = [];
    await new Promise<void>((resolve) => {
      const socket = connect(port, "127.0.0.1", () => socket.end(bytes));
      socket.on("data", () => undefined).on("error", () => undefined);
      socket.on("close", () => resolve());
    });
    return seen.length === 1 ? (seen[0] ?? null) : null;
  };
}

const pieces = fc.oneof(
  {
    weight: 6,
    arbitrary: fc
      .tuple(fc.stringMatching(/^[A-Za-z-]{1,12}$/), fc.stringMatching(/^[ -~]{0,12}$/))
      .map((pair) => pair.join(":")),
  },
  {
    weight: 3,
    arbitrary: fc.constantFrom(
      "Content-Length: 3",
      "content-length:3",
      "Content-Length: 03 ",
      "Content-Length: 2",
    ),
  },
  {
    weight: 2,
    arbitrary: fc.constantFrom(
      "Connection: close",
      "Connection: keep-alive",
      "Authorization: Bearer x",
      "Host: a",
    ),
  },
  {
    weight: 1,
    arbitrary: fc.constantFrom(
      ...[
        "Transfer-Encoding: chunked",
        "Transfer-Encoding : chunked",
        "Expect: 100-continue",
        "Connection: upgrade",
        "Upgrade: h2c",
        "Trailer: X",
      ],
      ...[
        " folded",
        "X: a\rB: c",
        "X: a\nContent-Length: 1",
        "",
        "X",
        ":",
        "Content-Length: 3, 3",
        "Proxy-Connection: close",
        "TE: trailers",
      ],
    ),
  },
);
const lines = fc.oneof(
  {
    weight: 9,
    arbitrary: fc
      .stringMatching(/^[!-~]{0,20}$/)
      .chain((rest) =>
        fc.constantFrom("POST", "POST", "DELETE").map((method) => `${method} /${rest} HTTP/1.1`),
      ),
  },
  {
    weight: 1,
    arbitrary: fc.constantFrom(
      "POST / HTTP/1.0",
      "GET / HTTP/1.1",
      "POST  / HTTP/1.1",
      "POST /\t HTTP/1.1",
      "POST /\xff HTTP/1.1",
    ),
  },
);

test("Node's own parser reads every plain head in the same way", async () => {
  const node = await nodeReader();
  let plain = 0;
  const request = fc.tuple(
    lines,
    fc.array(pieces, { maxLength: 6 }),
    fc.uint8Array({ minLength: 3, maxLength: 3 }),
  );
  await fc.assert(
    fc.asyncProperty(request, async ([first, fields, body]) => {
      const text = [first, ...fields, "", ""].join("\r\n");
      const bytes = Buffer.concat([Buffer.from(text, "latin1"), body]);
      const found = parsePlainHead(bytes);
      if (found === null || found.headBytes + found.length !== bytes.length) return;
      plain++;
      const { method, target: url, rawHeaders, keepsAlive, headBytes } = found;
      expect(await node(bytes)).toEqual({
        method,
        url,
        rawHeaders,
        isKept: keepsAlive,
        body: bytes.toString("latin1", headBytes),
      });
    }),
    { numRuns: 3_000 },
  );
  expect(plain).toBeGreaterThan(300);
});

test("no bytes cause an error, and the cost of a long head is linear", () => {
  fc.assert(fc.property(fc.uint8Array({ maxLength: 400 }), (some) => void parsePlainHead(Buffer.from(some))));
  for (const filler of ["a: b\r\n", "a:\r\n", "\t: \t", "\r", "a"]) {
    const fillers = filler.repeat(Math.floor(65_000 / filler.length));
    const text = `${line}\r\n${fillers}\r\nContent-Length: 0\r\n\r\n`;
    expect(() => read(text)).not.toThrow();
  }
});
