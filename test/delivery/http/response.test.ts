import { createServer } from "node:net";
import { request as nodeRequest } from "node:http";
import type { AddressInfo } from "node:net";
import fc from "fast-check";
import { describe, expect, onTestFinished, test } from "vitest";
import type { HeaderList } from "../../../src/core/model/message.ts";
import { ResponseReader, BadResponse, maxHeadBytes, type ConnectionReuse } from "../../../src/delivery/http/response.ts";

type Read = { status: number; headers: HeaderList; body: string; reuse: ConnectionReuse; isWhole: boolean; began: number };

/** What is read of these pieces; `ended`: then the connection ends. */
function read(pieces: readonly string[], { method = "POST", ended = false } = {}): Read {
  const heard = { status: 0, headers: [] as HeaderList, body: "", began: 0 };
  const reader = new ResponseReader(method, {
    onResponse: (status, fields) => Object.assign(heard, { status, headers: fields(), began: heard.began + 1 }),
    onBody: (bytes) => void (heard.body += bytes.toString("latin1")),
  });
  for (const piece of pieces) reader.take(Buffer.from(piece, "latin1"));
  const { reuse } = reader;
  const isWhole = ended ? reader.handleClose() : reader.isWhole;
  return { ...heard, reuse, isWhole };
}

const ok = "HTTP/1.1 200 OK\r\n";
const chunked = `${ok}Transfer-Encoding: chunked\r\n\r\n`;

describe("an answer", () => {
  test.each([
    ["of a stated length", `${ok}Content-Length: 5\r\n\r\nhello`, "hello"],
    ["of length 0", `${ok}Content-Length: 0\r\n\r\n`, ""],
    ["whose length is said twice", `${ok}Content-Length: 2\r\nContent-Length: 2\r\n\r\nok`, "ok"],
    ["whose length is said twice in one", `${ok}Content-Length: 2, 2\r\n\r\nok`, "ok"],
    ["in chunks", `${chunked}5\r\nhello\r\n6;a=b\r\n world\r\n0\r\n\r\n`, "hello world"],
    ["in chunks, with capital and leading digits", `${chunked}00A\r\n0123456789\r\n000\r\n\r\n`, "0123456789"],
    ["in chunks, and trailers", `${chunked}2\r\nok\r\n0\r\nX-Sum: 1\r\n\r\n`, "ok"],
    ["in CHUNKS", `${ok}transfer-encoding: Chunked\r\n\r\n2\r\nok\r\n0\r\n\r\n`, "ok"],
    ["without a reason", "HTTP/1.1 200\r\nContent-Length: 2\r\n\r\nok", "ok"],
    ["with a reason beyond ASCII", "HTTP/1.1 200 \xe9t\xe9\r\nContent-Length: 2\r\n\r\nok", "ok"],
    ["after 100 Continue", `HTTP/1.1 100 Continue\r\n\r\n${ok}Content-Length: 2\r\n\r\nok`, "ok"],
    ["after early hints", `HTTP/1.1 103 Early Hints\r\nLink: </a>\r\nContent-Length: 9\r\n\r\n${ok}Content-Length: 2\r\n\r\nok`, "ok"],
  ])("%s is whole, and its connection may be used again", (_case, said, body) => {
    expect(read([said])).toMatchObject({ status: 200, body, isWhole: true, reuse: { seconds: 4 }, began: 1 });
    expect(read([said.slice(0, -1)])).toMatchObject({ isWhole: false, reuse: null });
  });

  test.each([
    ["to HEAD", "HEAD", `${ok}Content-Length: 5\r\n\r\n`, 200],
    ["with 204", "POST", "HTTP/1.1 204 No Content\r\nContent-Length: 5\r\n\r\n", 204],
    ["with 304", "GET", "HTTP/1.1 304 Not Modified\r\nTransfer-Encoding: chunked\r\n\r\n", 304],
  ])("%s has no body, whatever it says", (_case, method, said, status) => {
    expect(read([said], { method })).toMatchObject({ status, body: "", isWhole: true, reuse: { seconds: 4 } });
  });

  test("without a length ends with its connection", () => {
    expect(read([`${ok}\r\nhel`, "lo"])).toMatchObject({ body: "hello", isWhole: false });
    expect(read([`${ok}\r\nhel`, "lo"], { ended: true })).toMatchObject({ body: "hello", isWhole: true, reuse: null });
    for (const cut of [ok, `${ok}\r\n`.slice(0, -1), `${ok}Content-Length: 3\r\n\r\nhe`, `${chunked}5\r\nhello\r\n0\r\n`, ""])
      expect(read([cut], { ended: true }).isWhole).toBe(false);
  });

  test("keeps names and values as they were sent, without the blanks around values", () => {
    const { headers } = read([`${ok}x-A:1\r\nX-a: \t two  words \t\r\nEmpty:\r\nX-Latin: \xe9\r\nContent-Length: 0\r\n\r\n`]);
    expect(headers).toEqual([
      ["x-A", "1"],
      ["X-a", "two  words"],
      ["Empty", ""],
      ["X-Latin", "\xe9"],
      ["Content-Length", "0"],
    ]);
  });
});

test.each([
  ["Connection: close", null],
  ["Connection: x, Close", null],
  ["Connection: closed", { seconds: 4 }],
  ["Keep-Alive: timeout=5", { seconds: 4 }],
  ["Keep-Alive: timeout=20, max=100", { seconds: 19 }],
  ["Keep-Alive: max=100,timeout=900", { seconds: 30 }],
  ["Keep-Alive: timeout=1", null],
  ["Keep-Alive: timeout=0", null],
  ["Keep-Alive: timeout=99999999999", { seconds: 4 }],
  ["X: y", { seconds: 4 }],
])("%s: the connection may be used for %j", (header, reuse) => {
  expect(read([`${ok}${header}\r\nContent-Length: 0\r\n\r\n`]).reuse).toEqual(reuse);
});

test("HTTP/1.0 closes its connection unless it says otherwise, and knows no chunks", () => {
  expect(read(["HTTP/1.0 200 OK\r\nContent-Length: 0\r\n\r\n"]).reuse).toBe(null);
  expect(read(["HTTP/1.0 200 OK\r\nConnection: Keep-Alive\r\nContent-Length: 0\r\n\r\n"]).reuse).toEqual({ seconds: 4 });
  expect(() => read(["HTTP/1.0 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"])).toThrow("transfer encoding");
});

test("what follows the answer unasked costs the connection", () => {
  expect(read([`${ok}Content-Length: 2\r\n\r\nokHTTP/1.1 200 OK\r\n`])).toMatchObject({ body: "ok", isWhole: true, reuse: null });
  expect(read([`${ok}Content-Length: 2\r\n\r\nok`, "more"])).toMatchObject({ body: "ok", isWhole: true, reuse: null });
});

describe("not valid HTTP", () => {
  test.each([
    ["S", "status line"],
    ["SSH-2.0-OpenSSH", "status line"],
    ["HTTP/2 200\r\n", "status line"],
    ["HTTP/1.1 99 OK\r\n", "status line"],
    ["HTTP/1.1 2000 OK\r\n", "status line"],
    ["HTTP/1.1  200 OK\r\n", "status line"],
    ["http/1.1 200 OK\r\n", "status line"],
    ["HTTP/1.1 200 O\0K\r\n", "status line"],
    ["\r\nHTTP/1.1 200 OK\r\n", "status line"],
    ["HTTP/1.1 200 OK\n", "CR LF"],
    [`${ok}A: 1\n`, "CR LF"],
    [`${ok}A: 1\r\n\n`, "CR LF"],
    [`${ok}: 1\r\n`, "header"],
    [`${ok}A\r\n`, "header"],
    [`${ok}A : 1\r\n`, "header"],
    [`${ok} A: 1\r\n`, "header"],
    [`${ok}A: 1\r\n folded\r\n`, "header"],
    [`${ok}A: 1\rB: 2\r\n`, "header"],
    [`${ok}A: \0\r\n`, "header"],
    [`${ok}\xe9: 1\r\n`, "header"],
    [`${ok}Content-Length: 1, 2\r\n\r\n`, "two lengths"],
    [`${ok}Content-Length: 1\r\nContent-Length: 2\r\n\r\n`, "two lengths"],
    [`${ok}Content-Length: -1\r\n\r\n`, "not a number"],
    [`${ok}Content-Length: +1\r\n\r\n`, "not a number"],
    [`${ok}Content-Length: 0x1\r\n\r\n`, "not a number"],
    [`${ok}Content-Length: 1 1\r\n\r\n`, "not a number"],
    [`${ok}Content-Length:\r\n\r\n`, "not a number"],
    [`${ok}Content-Length: 9999999999999999\r\n\r\n`, "not a number"],
    [`${ok}Content-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n`, "two lengths"],
    [`${ok}Transfer-Encoding: gzip, chunked\r\n\r\n`, "transfer encoding"],
    [`${ok}Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n\r\n`, "transfer encoding"],
    [`${ok}Transfer-Encoding: \r\n\r\n`, "transfer encoding"],
    [`${chunked}\r\n`, "chunk"],
    [`${chunked}-1\r\n`, "chunk"],
    [`${chunked}0x1\r\n`, "chunk"],
    [`${chunked}1 1\r\n`, "chunk"],
    [`${chunked}1000000000000\r\n`, "chunk"],
    [`${chunked}1\n`, "CR LF"],
    [`${chunked}1\r\nab\r\n`, "chunk"],
    [`${chunked}1;${"x".repeat(2_000)}`, "chunk"],
  ])("%j", (said, how) => {
    const wrong = new RegExp(`^the answer is not valid HTTP: .*${how}`);
    expect(() => read([said])).toThrow(wrong);
    expect(() => read(said.split(""))).toThrow(wrong);
  });

  test("more of a head than is read, in one piece or in many, ended or not", () => {
    const large = "response headers larger than 32 KiB";
    const long = `A: ${"x".repeat(maxHeadBytes)}`;
    for (const said of [
      `${ok}${long}`,
      `${ok}${long}\r\n\r\n`,
      ok + "A: 1\r\n".repeat(maxHeadBytes / 5),
      `HTTP/1.1 ${"2".repeat(maxHeadBytes)}`,
    ]) {
      expect(() => read([said])).toThrow(large);
      expect(() => read(said.split(/(?<=\r\n)|(?=x{1000})/))).toThrow(large);
    }
    expect(() => read(["HTTP/1.1 100 Continue\r\n\r\n".repeat(maxHeadBytes / 20)])).toThrow(large);
    expect(() => read([`${chunked}0\r\n${"A: 1\r\n".repeat(maxHeadBytes / 5)}`])).toThrow(large);
  });
});

const field = fc
  .tuple(fc.stringMatching(/^[A-Za-z-]{1,8}$/), fc.stringMatching(/^[!-~]([ -~]{0,10}[!-~])?$/))
  .filter(([name]) => !/^(content-length|transfer-encoding|connection|keep-alive)$/i.test(name));
const bytes = fc.uint8Array({ maxLength: 300 }).map((some) => Buffer.from(some).toString("latin1"));
const answer = fc
  .record({
    status: fc.integer({ min: 200, max: 599 }),
    fields: fc.array(field, { maxLength: 6 }),
    parts: fc.array(bytes, { maxLength: 5 }),
    how: fc.constantFrom("length", "chunks", "end"),
  })
  .map(({ status, fields, parts, how }) => {
    const head = `HTTP/1.1 ${status} x\r\n${fields.map(([name, value]) => `${name}: ${value}\r\n`).join("")}`;
    const none = status === 204 || status === 304;
    const body = parts.join("");
    if (how === "end") return { said: `${head}Connection: close\r\n\r\n${none ? "" : body}`, body: none ? "" : body, status, fields };
    if (how === "length")
      return { said: `${head}Content-Length: ${body.length}\r\n\r\n${none ? "" : body}`, body: none ? "" : body, status, fields };
    const chunks = parts.filter((part) => part !== "").map((part) => `${part.length.toString(16)}\r\n${part}\r\n`);
    return {
      said: `${head}Transfer-Encoding: chunked\r\n\r\n${none ? "" : `${chunks.join("")}0\r\n\r\n`}`,
      body: none ? "" : body,
      status,
      fields,
    };
  });

/** The text in pieces, cut at these places. */
function cutAt(text: string, places: readonly number[]): string[] {
  const at = [0, ...places.map((place) => place % (text.length + 1)), text.length].toSorted((a, b) => a - b);
  return at.slice(1).map((end, index) => text.slice(at[index], end));
}

test("an answer is the same in whatever pieces it comes", () => {
  fc.assert(
    fc.property(answer, fc.array(fc.nat(), { maxLength: 20 }), ({ said, body, status, fields }, places) => {
      const found = read(cutAt(said, places), { ended: true });
      expect(found).toMatchObject({ status, body, isWhole: true });
      expect(found.headers.slice(0, fields.length)).toEqual(fields);
    }),
  );
});

test("any bytes are taken or refused, and never anything else", () => {
  const noise = fc.oneof(
    bytes,
    fc.constantFrom(
      ok,
      chunked,
      "\r\n",
      "\r\n\r\n",
      "0\r\n\r\n",
      "5\r\n",
      "Content-Length: 3\r\n",
      "Transfer-Encoding: chunked\r\n",
      ":",
      "\n",
      " ",
    ),
  );
  fc.assert(
    fc.property(fc.array(noise, { maxLength: 12 }), fc.array(fc.nat(), { maxLength: 8 }), (parts, places) => {
      const verdict = (pieces: readonly string[]): unknown => {
        try {
          const { reuse: _reuse, ...found } = read(pieces, { ended: true });
          return found;
        } catch (error) {
          expect(error).toBeInstanceOf(BadResponse);
          return "refused";
        }
      };
      const said = parts.join("");
      expect(verdict(cutAt(said, places))).toEqual(verdict([said]));
    }),
    { numRuns: 2_000 },
  );
});

/** A server that says what is at the path; and what Node's own client makes of it. */
async function nodeReads(says: readonly string[]): Promise<({ status: number; body: string } | "refused")[]> {
  const server = createServer((socket) => {
    socket.on("error", () => undefined);
    socket.once("data", (asked) => socket.end(says[Number(/ \/(\d+) /.exec(asked.toString())?.[1])] ?? "", "latin1"));
  });
  await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
  onTestFinished(() => void server.close());
  const { port } = server.address() as AddressInfo;
  const one = (index: number): Promise<{ status: number; body: string } | "refused"> =>
    new Promise((resolve) => {
      const asked = nodeRequest({ port, host: "127.0.0.1", path: `/${index}`, method: "POST", agent: false }, (incoming) => {
        const chunks: Buffer[] = [];
        incoming.on("data", (chunk: Buffer) => chunks.push(chunk));
        incoming.on("error", () => resolve("refused"));
        incoming.on("end", () => resolve({ status: incoming.statusCode ?? 0, body: Buffer.concat(chunks).toString("latin1") }));
      });
      asked.on("error", () => resolve("refused"));
      asked.end();
    });
  const answers: ({ status: number; body: string } | "refused")[] = [];
  for (let from = 0; from < says.length; from += 50)
    answers.push(...(await Promise.all(says.slice(from, from + 50).map((_, index) => one(from + index)))));
  return answers;
}

test("what Node's own client takes for whole is read the same, and what it refuses is never taken for another answer", async () => {
  const edits = fc.array(fc.tuple(fc.nat(), fc.constantFrom("", "\r", "\n", "\r\n", " ", ":", "0", "1", "a", ";", "\0", ",")), {
    maxLength: 2,
  });
  const edited = fc.tuple(answer, edits).map(([{ said }, changes]) =>
    changes.reduce((text, [place, by]) => {
      const at = place % text.length;
      return text.slice(0, at) + by + text.slice(at + (by === "" ? 1 : 0));
    }, said),
  );
  const says = fc.sample(edited, 400);
  const expected = await nodeReads(says);
  const both = says
    .map((said, index) => ({ said, node: expected[index], own: verdictOf(said) }))
    .filter(({ node, own }) => own !== "refused" && node !== "refused");
  expect(both.filter(({ node, own }) => JSON.stringify(node) !== JSON.stringify(own))).toEqual([]);
  expect(both.length).toBeGreaterThan(100);
});

function verdictOf(said: string): { status: number; body: string } | "refused" {
  try {
    const { status, body, isWhole } = read([said], { ended: true });
    return isWhole ? { status, body } : "refused";
  } catch {
    // It is stricter, so it may refuse what the other takes.
    return "refused";
  }
}

describe("a body in small pieces", () => {
  /** How often the listener is called, and what it gets. */
  function listen(): { reader: ResponseReader; heard: { calls: number; bytes: number } } {
    const heard = { calls: 0, bytes: 0 };
    const reader = new ResponseReader("POST", {
      onResponse: () => undefined,
      onBody: ({ length }) => void ((heard.calls += 1), (heard.bytes += length)),
    });
    return { reader, heard };
  }
  const chunk = (size: number): string => `${size.toString(16)}\r\n${"x".repeat(size)}\r\n`;

  test("reaches its listener once for each look at the connection", () => {
    const { reader, heard } = listen();
    reader.take(Buffer.from(chunked + chunk(1).repeat(4_000)));
    expect(heard).toEqual({ calls: 1, bytes: 4_000 });
    reader.take(Buffer.from(chunk(1).repeat(4_000) + chunk(2_000)));
    expect(heard).toEqual({ calls: 3, bytes: 10_000 });
  });

  test("is read as far as it may be in one go", () => {
    const { reader, heard } = listen();
    const bytes = Buffer.from(chunked + chunk(1).repeat(500) + "0\r\n\r\nmore");
    const taken = reader.take(bytes, 300);
    expect([taken < bytes.length, heard.bytes, reader.isWhole]).toEqual([true, 300, false]);
    expect(reader.take(bytes.subarray(taken))).toBe(bytes.length - taken);
    // What nobody asked for is not left for the next response.
    expect([heard.bytes, reader.isWhole, reader.reuse]).toEqual([500, true, null]);
  });

  test("is refused if it comes in chunks of one byte, from the 10,001st on", () => {
    const { reader, heard } = listen();
    reader.take(Buffer.from(chunked));
    for (let n = 0; n < 100; n++) reader.take(Buffer.from(chunk(1).repeat(100)));
    expect(heard).toEqual({ calls: 100, bytes: 10_000 });
    expect(() => reader.take(Buffer.from(chunk(1)))).toThrow(new BadResponse("the answer comes in pieces of a few bytes each"));
  });

  test("is refused as well if one look at the connection brings one byte each time", () => {
    const { reader } = listen();
    reader.take(Buffer.from(`${ok}Content-Length: 1000000\r\n\r\n`));
    expect(() => {
      for (let n = 0; n < 20_000; n++) reader.take(Buffer.from("x"));
    }).toThrow(BadResponse);
  });

  test.each([16, 1_023, 1_024])("is read to its end if its chunks have %d bytes", (size) => {
    const { reader, heard } = listen();
    reader.take(Buffer.from(chunked));
    for (let n = 0; n < 200; n++) reader.take(Buffer.from(chunk(size).repeat(100)));
    reader.take(Buffer.from("0\r\n\r\n"));
    expect([reader.isWhole, heard.bytes]).toEqual([true, 20_000 * size]);
  });
});
