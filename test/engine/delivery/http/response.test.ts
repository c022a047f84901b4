import { describe, expect, test } from "vitest";
import { ResponseReader, BadResponse, maxHeadBytes } from "../../../../src/engine/delivery/http/response.ts";
import { chunked, ok, read } from "./readResponse.ts";

describe("a response", () => {
  test.each([
    ["of a stated length", `${ok}Content-Length: 5\r\n\r\nhello`, "hello"],
    ["of length 0", `${ok}Content-Length: 0\r\n\r\n`, ""],
    ["whose length is said twice", `${ok}Content-Length: 2\r\nContent-Length: 2\r\n\r\nok`, "ok"],
    ["whose length is said twice in one", `${ok}Content-Length: 2, 2\r\n\r\nok`, "ok"],
    ["in chunks", `${chunked}5\r\nhello\r\n6;a=b\r\n world\r\n0\r\n\r\n`, "hello world"],
    [
      "in chunks, with capital and leading digits",
      `${chunked}00A\r\n0123456789\r\n000\r\n\r\n`,
      "0123456789",
    ],
    ["in chunks, and trailers", `${chunked}2\r\nok\r\n0\r\nX-Sum: 1\r\n\r\n`, "ok"],
    ["in CHUNKS", `${ok}transfer-encoding: Chunked\r\n\r\n2\r\nok\r\n0\r\n\r\n`, "ok"],
    ["without a reason", "HTTP/1.1 200\r\nContent-Length: 2\r\n\r\nok", "ok"],
    ["with a reason beyond ASCII", "HTTP/1.1 200 \xe9t\xe9\r\nContent-Length: 2\r\n\r\nok", "ok"],
    ["after 100 Continue", `HTTP/1.1 100 Continue\r\n\r\n${ok}Content-Length: 2\r\n\r\nok`, "ok"],
    [
      "after early hints",
      `HTTP/1.1 103 Early Hints\r\nLink: </a>\r\nContent-Length: 9\r\n\r\n${ok}Content-Length: 2\r\n\r\nok`,
      "ok",
    ],
  ])("%s is complete, and its connection may be reused", (_case, said, body) => {
    expect(read([said])).toMatchObject({ status: 200, body, isWhole: true, reuse: { seconds: 4 }, began: 1 });
    expect(read([said.slice(0, -1)])).toMatchObject({ isWhole: false, reuse: null });
  });

  test.each([
    ["to HEAD", { method: "HEAD", said: `${ok}Content-Length: 5\r\n\r\n`, status: 200 }],
    [
      "with 204",
      { method: "POST", said: "HTTP/1.1 204 No Content\r\nContent-Length: 5\r\n\r\n", status: 204 },
    ],
    [
      "with 304",
      {
        method: "GET",
        said: "HTTP/1.1 304 Not Modified\r\nTransfer-Encoding: chunked\r\n\r\n",
        status: 304,
      },
    ],
  ])("%s has no body, regardless of its headers", (_case, { method, said, status }) => {
    expect(read([said], { method })).toMatchObject({
      status,
      body: "",
      isWhole: true,
      reuse: { seconds: 4 },
    });
  });

  test("without a length ends with its connection", () => {
    expect(read([`${ok}\r\nhel`, "lo"])).toMatchObject({ body: "hello", isWhole: false });
    expect(read([`${ok}\r\nhel`, "lo"], { ended: true })).toMatchObject({
      body: "hello",
      isWhole: true,
      reuse: null,
    });
    for (const cut of [
      ok,
      `${ok}\r\n`.slice(0, -1),
      `${ok}Content-Length: 3\r\n\r\nhe`,
      `${chunked}5\r\nhello\r\n0\r\n`,
      "",
    ])
      expect(read([cut], { ended: true }).isWhole).toBe(false);
  });

  test("keeps names and values as they were sent, without blanks around values", () => {
    const { headers } = read([
      `${ok}x-A:1\r\nX-a: \t two  words \t\r\nEmpty:\r\nX-Latin: \xe9\r\nContent-Length: 0\r\n\r\n`,
    ]);
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
])("%s: the connection may be reused for %j", (header, reuse) => {
  expect(read([`${ok}${header}\r\nContent-Length: 0\r\n\r\n`]).reuse).toEqual(reuse);
});

test("HTTP/1.0 closes its connection unless it says otherwise, and has no chunks", () => {
  expect(read(["HTTP/1.0 200 OK\r\nContent-Length: 0\r\n\r\n"]).reuse).toBe(null);
  expect(read(["HTTP/1.0 200 OK\r\nConnection: Keep-Alive\r\nContent-Length: 0\r\n\r\n"]).reuse).toEqual({
    seconds: 4,
  });
  expect(() => read(["HTTP/1.0 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"])).toThrow("transfer encoding");
});

test("bytes after the response close the connection", () => {
  expect(read([`${ok}Content-Length: 2\r\n\r\nokHTTP/1.1 200 OK\r\n`])).toMatchObject({
    body: "ok",
    isWhole: true,
    reuse: null,
  });
  expect(read([`${ok}Content-Length: 2\r\n\r\nok`, "more"])).toMatchObject({
    body: "ok",
    isWhole: true,
    reuse: null,
  });
});

describe("invalid HTTP", () => {
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
    const wrong = new RegExp(`^the response is not valid HTTP: .*${how}`);
    expect(() => read([said])).toThrow(wrong);
    expect(() => read(said.split(""))).toThrow(wrong);
  });

  test("a head that is too large is refused, in one piece or in many, ended or not", () => {
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

describe("a body in small pieces", () => {
  /** Returns how often the listener is called, and with what. */
  function listen(): { reader: ResponseReader; heard: { calls: number; bytes: number } } {
    const heard = { calls: 0, bytes: 0 };
    const reader = new ResponseReader("POST", {
      onResponse: () => undefined,
      onBody: ({ length }) => void ((heard.calls += 1), (heard.bytes += length)),
    });
    return { reader, heard };
  }
  const chunk = (size: number): string => `${size.toString(16)}\r\n${"x".repeat(size)}\r\n`;

  test("reaches its listener once per read of the connection", () => {
    const { reader, heard } = listen();
    reader.take(Buffer.from(chunked + chunk(1).repeat(4_000)));
    expect(heard).toEqual({ calls: 1, bytes: 4_000 });
    reader.take(Buffer.from(chunk(1).repeat(4_000) + chunk(2_000)));
    expect(heard).toEqual({ calls: 3, bytes: 10_000 });
  });

  test("is read up to the limit of one turn", () => {
    const { reader, heard } = listen();
    const bytes = Buffer.from(chunked + chunk(1).repeat(500) + "0\r\n\r\nmore");
    const taken = reader.take(bytes, 300);
    expect([taken < bytes.length, heard.bytes, reader.isWhole]).toEqual([true, 300, false]);
    expect(reader.take(bytes.subarray(taken))).toBe(bytes.length - taken);
    // Unrequested bytes are not left for the next response.
    expect([heard.bytes, reader.isWhole, reader.reuse]).toEqual([500, true, null]);
  });

  test("is refused if it comes in chunks of one byte, from the 10,001st on", () => {
    const { reader, heard } = listen();
    reader.take(Buffer.from(chunked));
    for (let n = 0; n < 100; n++) reader.take(Buffer.from(chunk(1).repeat(100)));
    expect(heard).toEqual({ calls: 100, bytes: 10_000 });
    expect(() => reader.take(Buffer.from(chunk(1)))).toThrow(
      new BadResponse("the response comes in pieces of a few bytes each"),
    );
  });

  test("is also refused if each read brings one byte", () => {
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
