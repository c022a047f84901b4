import { once } from "node:events";
import { connect } from "node:net";
import { describe, expect, onTestFinished, test } from "vitest";
import { createAccessCounters } from "../../../src/api/auth/accessCounters.ts";
import { makeUnavailable } from "../../../src/engine/core/values/errors.ts";
import type { TestServer } from "../testServer.ts";
import { createTestServer, testTime, token } from "../testServer.ts";
import { listen } from "../wire.ts";

const publish = "/v2/publish/https://example.com";
const piece = Buffer.alloc(64 * 1024, "x");
/** Less than what is read from a sender without a token. */
const length = 900_000;

type Sent = { head: string; afterContinue?: boolean };

/**
 * Sends a head and then a body to its end, whatever the server answers meanwhile. Returns the answer, and the
 * errors of the connection.
 */
async function writeOn(port: number, { head, afterContinue = false }: Sent) {
  // Otherwise Node would end its side as soon as the server has ended the other.
  const socket = connect({ port, host: "127.0.0.1", allowHalfOpen: true });
  onTestFinished(() => void socket.destroy());
  const errors: string[] = [];
  let reply = "";
  socket.on("error", (error) => errors.push(error.message));
  socket.on("data", (part: Buffer) => (reply += part.toString("latin1")));
  const closed = new Promise((resolve) => socket.once("close", resolve));
  await once(socket, "connect");
  socket.write(head);
  if (afterContinue) await expect.poll(() => reply).not.toBe("");
  if (!afterContinue || reply.startsWith("HTTP/1.1 100"))
    for (let left = length; left > 0 && !socket.destroyed; left -= piece.length) {
      await new Promise((resolve) => socket.write(piece.subarray(0, left), resolve));
      await new Promise((resolve) => setTimeout(resolve, 2));
    }
  socket.end();
  await closed;
  return { reply, errors };
}

type Head = { bearer: string | null; more?: readonly string[] };

const formatHead = ({ bearer, more = [] }: Head): string =>
  [
    `POST ${publish} HTTP/1.1`,
    "Host: x",
    ...(bearer === null ? [] : [`Authorization: Bearer ${bearer}`]),
    `Content-Length: ${length}`,
    ...more,
    "",
    "",
  ].join("\r\n");

/** A server that has refused as many requests of this address as it may in this second. */
async function createExhausted(fastPath: boolean): Promise<TestServer> {
  const counted = createAccessCounters(() => testTime, undefined, 1);
  const server = await createTestServer({ fastPath, counted });
  expect((await server.ask("GET", "/", { token: null })).status).toBe(404);
  return server;
}

/** A server that cannot look up tokens. */
const createUnavailable = (fastPath: boolean): Promise<TestServer> =>
  createTestServer({
    fastPath,
    wrap: (store) => ({
      ...store,
      read: {
        ...store.read,
        accountByToken: () => Promise.reject(makeUnavailable("read", new Error("the database is down"))),
      },
    }),
  });

const createFull = (fastPath: boolean): Promise<TestServer> =>
  createTestServer({ fastPath, requestBodyBytes: 200_000 });

type Refused = {
  what: string;
  create(fastPath: boolean): Promise<TestServer>;
  bearer: string | null;
  status: number;
  /** Whether a sender that waits for 100 Continue is refused only while its body arrives. */
  continues?: boolean;
};

const refusals: readonly Refused[] = [
  { what: "too many refused requests, without a token", create: createExhausted, bearer: null, status: 429 },
  { what: "too many refused requests, with a wrong one", create: createExhausted, bearer: "no", status: 429 },
  { what: "a database that is down", create: createUnavailable, bearer: token, status: 503 },
  { what: "no room for bodies", create: createFull, bearer: token, status: 503, continues: true },
];

describe.each([
  ["the fast path", true],
  ["the framework", false],
])("a client that writes on, refused on %s,", (_name, fastPath) => {
  test.each(refusals)("gets $status for $what", async ({ create, bearer, status, continues = false }) => {
    const port = await listen(await create(fastPath));
    const written = await writeOn(port, { head: formatHead({ bearer }) });
    expect(written.reply).toMatch(new RegExp(`^HTTP/1.1 ${status} [^]*connection: close\r\n`, "i"));
    expect(written.errors).toEqual([]);

    const more = ["Expect: 100-continue"];
    const waited = await writeOn(port, {
      head: formatHead({ bearer, more }),
      afterContinue: true,
    });
    expect(waited.reply.includes("100 Continue")).toBe(continues);
    expect(waited.reply).toMatch(new RegExp(`HTTP/1.1 ${status} [^]*connection: close\r\n`, "i"));
    expect(waited.errors).toEqual([]);
  });
});

describe("a client that writes on after bytes that are not HTTP", () => {
  test.each([
    ["a malformed header", `POST ${publish} HTTP/1.1\r\nHost x\r\n\r\n`, 400],
    ["headers that are too long", `POST ${publish} HTTP/1.1\r\nHost: x\r\nX-Long: `, 431],
    ["CONNECT", "CONNECT example.com:443 HTTP/1.1\r\nHost: example.com\r\n\r\n", 405],
    [
      "a malformed chunk",
      `POST ${publish} HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer ${token}\r\n` +
        "Transfer-Encoding: chunked\r\n\r\n5\r\nhello\r\nnone\r\n",
      400,
    ],
  ])("gets the refusal: %s", async (_what, head, status) => {
    for (const fastPath of [true, false]) {
      const port = await listen(await createTestServer({ fastPath }));
      const { reply, errors } = await writeOn(port, { head });
      expect(reply, `fast path: ${fastPath}`).toMatch(new RegExp(`^HTTP/1.1 ${status} `));
      expect(errors, `fast path: ${fastPath}`).toEqual([]);
    }
  });
});
