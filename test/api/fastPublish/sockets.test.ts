import { once } from "node:events";
import { connect } from "node:net";
import type { Socket } from "node:net";
import { promisify } from "node:util";
import fc from "fast-check";
import { expect, onTestFinished, test } from "vitest";
import { createTestServer, token } from "../testServer.ts";
import type { TestServer } from "../testServer.ts";
import { listen } from "../wire.ts";

type Answer = { status: number; head: string; body: string };

/** A connection that is kept, on which everything is written and read as bytes. */
class Talk {
  readonly socket: Socket;
  received = Buffer.alloc(0);
  isClosed = false;

  readonly #accepted: ReadonlyMap<number | undefined, Socket>;

  /** `accepted`: the other ends of connections, by the port of this one. */
  constructor(port: number, accepted: ReadonlyMap<number | undefined, Socket>) {
    this.#accepted = accepted;
    this.socket = connect({ port, host: "127.0.0.1", noDelay: true, allowHalfOpen: true });
    this.socket.on("data", (bytes: Buffer) => (this.received = Buffer.concat([this.received, bytes])));
    this.socket.on("close", () => (this.isClosed = true)).on("error", () => undefined);
    this.socket.on("end", () => this.socket.end());
    onTestFinished(() => void this.socket.destroy());
  }

  /** Each piece arrives alone. */
  async write(...pieces: readonly string[]): Promise<void> {
    for (const piece of pieces) {
      if (piece !== "") this.socket.write(piece, "latin1");
      do await pause(0);
      while (!this.isClosed && (this.#accepted.get(this.socket.localPort)?.bytesRead ?? 0) < this.socket.bytesWritten);
    }
  }

  /** The next answer. */
  async answer(): Promise<Answer> {
    for (;;) {
      const text = this.received.toString("latin1");
      const end = text.indexOf("\r\n\r\n");
      const length = Number(/^content-length: (\d+)/im.exec(text.slice(0, end))?.[1] ?? 0);
      if (end >= 0 && text.length >= end + 4 + length) {
        this.received = this.received.subarray(end + 4 + length);
        const head = text.slice(0, end);
        return { status: Number(/ (\d{3}) /.exec(head)?.[1]), head, body: text.slice(end + 4, end + 4 + length) };
      }
      if (this.isClosed) throw new Error(`closed after ${JSON.stringify(text)}`);
      await pause(1);
    }
  }

  async closed(): Promise<string> {
    if (!this.isClosed) await once(this.socket, "close");
    return this.received.toString("latin1");
  }
}

const pause = (time: number): Promise<void> => new Promise((resolve) => setTimeout(resolve, time));

type Open = TestServer & { port: number; usual: string[]; talk(): Talk };

/** A server whose token was used a moment ago, and that tells which requests Node's own parser has read. */
async function open(options: Parameters<typeof createTestServer>[0] = {}): Promise<Open> {
  const home = await createTestServer(options);
  const usual: string[] = [];
  home.api.server.on("request", ({ method, url }) => void usual.push(`${method} ${url}`));
  const port = await listen(home);
  const accepted = new Map<number | undefined, Socket>();
  home.api.server.on("connection", (socket: Socket) => accepted.set(socket.remotePort, socket));
  await home.ask("GET", "/v2/queues");
  usual.length = 0;
  return { ...home, port, usual, talk: () => new Talk(port, accepted) };
}

const request = (body: string, more: readonly string[] = [], line = "POST /v2/publish/https://e.example/ HTTP/1.1"): string =>
  [line, "Host: x", `Authorization: Bearer ${token}`, ...more, `Content-Length: ${body.length}`, "", body].join("\r\n");

const bodies = ({ deliveries }: TestServer): string[] => deliveries.map(({ message }) => Buffer.from(message.body).toString("latin1"));

test("one publish after the other on a connection, each as one piece or as a few", async () => {
  const home = await open();
  const talk = home.talk();
  for (const pieces of [[request("one")], [request("two").slice(0, -1), "o"], [request("three").slice(0, -3), "r", "e", "e"]]) {
    await talk.write(...pieces);
    expect(await talk.answer()).toMatchObject({ status: 200, head: expect.stringContaining("Keep-Alive: timeout=72") });
  }
  expect([bodies(home), home.usual]).toEqual([["one", "two", "three"], []]);
});

test("what comes in many pieces, or by halves of a head, goes the usual way from there on", async () => {
  const home = await open();
  const [many, half] = [home.talk(), home.talk()];
  await many.write(request("12345678").slice(0, -8), ..."12345678");
  expect((await many.answer()).status).toBe(200);
  await half.write("POST /v2/publish/https://e.example/ HT", request("half").slice("POST /v2/publish/https://e.example/ HT".length));
  expect((await half.answer()).status).toBe(200);
  expect([bodies(home), home.usual]).toEqual([["12345678", "half"], Array(2).fill("POST /v2/publish/https://e.example/")]);
  await many.write(request("then"));
  expect((await many.answer()).status).toBe(200);
  expect(home.usual).toHaveLength(3);
});

test("a token that was not used lately is looked up once for all who show it, and they are answered plainly", async () => {
  const asked: string[] = [];
  const home = await open({
    wrap: (store) => ({
      ...store,
      read: { ...store.read, accountByToken: (hash) => (asked.push(hash), pause(20).then(() => store.read.accountByToken(hash))) },
    }),
  });
  home.clock.now += 60_000;
  asked.length = 0;
  const [one, other] = [home.talk(), home.talk()];
  await one.write(request("a"), request("b"));
  await other.write(request("c").slice(0, -1), "c");
  expect((await Promise.all([one.answer(), other.answer()])).map(({ status }) => status)).toEqual([200, 200]);
  expect((await one.answer()).status).toBe(200);
  expect([bodies(home).toSorted(), home.usual]).toEqual([["a", "b", "c"], []]);
  expect(asked.length).toBeLessThanOrEqual(2);
});

test.each(["svc-label=%ff", "svc-delay=%zz", "upstash-delay=%"])("a query that cannot be read is refused in words: %s", async (query) => {
  const [plain, parsed] = [await open(), await open()].map((home) => home.talk());
  // From here on its requests are read by Node's parser.
  await parsed?.write("POST /v2/publish/https://e.example/ HT", request("x").slice("POST /v2/publish/https://e.example/ HT".length));
  expect((await parsed?.answer())?.status).toBe(200);
  for (const talk of [plain, parsed]) {
    await talk?.write(request("x", [], `POST /v2/publish/https://e.example/?${query} HTTP/1.1`));
    const refused = await talk?.answer();
    expect(refused?.status).toBe(400);
    expect(JSON.parse(refused?.body ?? "")).toEqual({ error: expect.stringMatching(/^[\w-]+: \S/) });
    await talk?.write(request("still here"));
    expect((await talk?.answer())?.status).toBe(200);
  }
});

test("a token that is nobody's is refused the usual way, and counted once as a try", async () => {
  const home = await open();
  const talk = home.talk();
  for (let tries = 0; tries < 3; tries++) {
    await talk.write(request("x").replace(token, "odd"));
    expect((await talk.answer()).status).toBe(401);
  }
  // Who says at once that no more will come is told as well.
  const last = home.talk();
  last.socket.end(request("x").replace(token, "odd"), "latin1");
  expect(await last.closed()).toMatch(/^HTTP\/1.1 401 /);
  expect([bodies(home), home.usual.length]).toEqual([[], 4]);
});

test("requests that are sent before the first is answered are answered in order, whatever they are", async () => {
  const home = await open();
  const talk = home.talk();
  const queues = ["GET /v2/queues HTTP/1.1", "Host: x", `Authorization: Bearer ${token}`, "", ""].join("\r\n");
  await talk.write(request("1"));
  await talk.write(request("2") + queues + request("3", ["Svc-Delay: soon"]));
  const answers = [await talk.answer(), await talk.answer(), await talk.answer(), await talk.answer()];
  expect(answers.map(({ status }) => status)).toEqual([200, 200, 200, 400]);
  expect([bodies(home), answers[2]?.body]).toEqual([["1", "2"], "[]"]);
});

test("any number of plain publishes in one piece are taken one after the other", async () => {
  let [underWay, most] = [0, 0];
  const home = await open({
    wrap: (store) => ({
      ...store,
      execute: (...given) => {
        most = Math.max(most, ++underWay);
        return store.execute(...given).finally(() => underWay--);
      },
    }),
  });
  const talk = home.talk();
  const all = Array.from({ length: 300 }, (_, index) => `${index}`);
  await talk.write(all.map((body) => request(body)).join(""));
  for (const _ of all) expect((await talk.answer()).status).toBe(200);
  expect([bodies(home), home.usual, most]).toEqual([all, [], 1]);
});

test("who says that no more will come is answered, and the connection ends; a body that breaks off is refused", async () => {
  const home = await open();
  const [whole, broken, silent] = [home.talk(), home.talk(), home.talk()];
  whole.socket.end(request("whole"), "latin1");
  broken.socket.end(request("broken").slice(0, -1), "latin1");
  silent.socket.end();
  expect(await whole.closed()).toMatch(/^HTTP\/1.1 200 OK\r\n/);
  expect(await broken.closed()).toMatch(/^HTTP\/1.1 400 Bad Request\r\n[^]*\{"error":"request: not valid HTTP[^"]*"\}$/);
  expect(await silent.closed()).toBe("");
  expect(bodies(home)).toEqual(["whole"]);
});

test("a connection that never says anything is told so; one that rests is closed; one that stops in a body gets as long as any", async () => {
  const home = await open();
  home.api.server.keepAliveTimeout = 100;
  home.api.server.headersTimeout = 100;
  const [silent, used, begun] = [home.talk(), home.talk(), home.talk()];
  await used.write(request("used"));
  expect((await used.answer()).head).toContain("Keep-Alive: timeout=0");
  await begun.write(request("begun").slice(0, -1));
  expect(await silent.closed()).toMatch(/^HTTP\/1.1 408 Request Timeout\r\n[^]*\{"error":"request: it did not arrive in time"\}$/);
  expect(await used.closed()).toBe("");
  await pause(50);
  await begun.write("n");
  expect((await begun.answer()).status).toBe(200);
  expect([bodies(home), home.usual.length]).toEqual([["used", "begun"], 1]);
});

test("a connection is kept for longer than its sender is told, so that no request is sent to one that closes", async () => {
  const home = await open();
  const served = once(home.api.server, "connection");
  const talk = home.talk();
  const [socket] = (await served) as [Socket];
  await talk.write(request("x"));
  await talk.answer();
  expect(socket.timeout).toBeGreaterThan(home.api.server.keepAliveTimeout);
});

test(
  "a connection that stops in the middle of a body while its token is looked up for long is watched as well",
  { tags: "long" },
  async () => {
    let held: Promise<void> | null = null;
    const home = await open({
      wrap: (store) => ({
        ...store,
        read: { ...store.read, accountByToken: async (hash) => (await held, store.read.accountByToken(hash)) },
      }),
    });
    home.clock.now += 60_000;
    const looking = Promise.withResolvers<void>();
    held = looking.promise;
    home.api.server.keepAliveTimeout = 1;
    const served = once(home.api.server, "connection");
    const talk = home.talk();
    const [socket] = (await served) as [Socket];
    const rung = once(socket, "timeout");
    await talk.write(request("begun").slice(0, -1));
    await rung;
    looking.resolve();
    // Node's own parser has been given it.
    while (socket.timeout !== 0) await pause(5);
    await talk.write("n");
    expect((await talk.answer()).status).toBe(200);
  },
);

test("a server that stops closes what is idle at once, and answers what is under way", async () => {
  const [asked, held] = [Promise.withResolvers<void>(), Promise.withResolvers<void>()];
  const home = await open({
    wrap: (store) => ({ ...store, execute: async (...given) => (asked.resolve(), await held.promise, store.execute(...given)) }),
  });
  const [idle, busy] = [home.talk(), home.talk()];
  await busy.write(request("busy"));
  await asked.promise;
  const closing = home.api.close();
  expect(await idle.closed()).toBe("");
  held.resolve();
  expect(await busy.closed()).toMatch(/^HTTP\/1.1 200 OK\r\n[^]*Connection: close/);
  await closing;
  expect(bodies(home)).toEqual(["busy"]);
});

test("a server that stops does not cut off an answer that is on its way to a slow reader", async () => {
  const home = await open();
  const served = once(home.api.server, "connection");
  const talk = home.talk();
  const [socket] = (await served) as [Socket];
  talk.socket.pause();
  const list = JSON.stringify([{ destination: "https://e.example/" }, ...Array.from({ length: 3_000 }, () => ({ destination: "." }))]);
  let sent = 0;
  while (socket.writableLength === 0) {
    const before = home.lines.length;
    await talk.write(request(list, [], "POST /v2/batch HTTP/1.1"));
    while (home.lines.length === before) await pause(5);
    await pause(20);
    sent++;
  }
  const closing = home.api.close();
  await pause(20);
  talk.socket.resume();
  for (let answered = 0; answered < sent; answered++) expect((await talk.answer()).status).toBe(200);
  await closing;
});

test("what is under way for too long ends with the server", async () => {
  const asked = Promise.withResolvers<void>();
  const home = await open({ wrap: (store) => ({ ...store, execute: () => (asked.resolve(), new Promise(() => undefined)) }) });
  const talk = home.talk();
  await talk.write(request("x"));
  await asked.promise;
  const closing = home.api.close();
  home.api.server.closeAllConnections();
  expect(await talk.closed()).toBe("");
  await closing;
});

test("who reads none of its answers is not listened to, until it does", { tags: "long" }, async () => {
  const home = await open();
  const talk = home.talk();
  talk.socket.pause();
  // Each is refused at length, as its destination is told in the refusal.
  const text = request("x", [], `POST /v2/publish/ftp://${"a".repeat(150)} HTTP/1.1`);
  let sent = 0;
  for (; sent < 200_000 && talk.socket.writableLength < 1_000_000; sent++) {
    talk.socket.write(text, "latin1");
    if (sent % 100 === 0) await pause(0);
  }
  await pause(200);
  expect(home.lines.length).toBeLessThan(sent);
  talk.socket.resume();
  while (home.lines.length < sent) {
    talk.received = Buffer.alloc(0);
    await pause(5);
  }
});

test("what comes behind the last request of a connection is not taken, also while the answer still waits to be read", async () => {
  const home = await open();
  const served = once(home.api.server, "connection");
  const talk = home.talk();
  const [socket] = (await served) as [Socket];
  // As with a sender that reads slowly.
  socket.end = () => socket;
  onTestFinished(() => void socket.destroy());
  await talk.write(request("last", ["Connection: close"]));
  expect((await talk.answer()).head).toContain("Connection: close");
  await talk.write(request("behind"));
  await pause(30);
  expect(bodies(home)).toEqual(["last"]);
});

const kinds = {
  plain: (body: string) => ({ text: request(body), status: 200, body }),
  refused: (body: string) => ({ text: request(body, ["Svc-Delay: soon"]), status: 400, body: null }),
  inChunks: (body: string) => ({
    text: request(body).replace(
      /Content-Length: \d+\r\n\r\n[^]*/,
      // No text: of `$&` in a body something else would be made.
      () => `Transfer-Encoding: chunked\r\n\r\n${body === "" ? "" : `${body.length.toString(16)}\r\n${body}\r\n`}0\r\n\r\n`,
    ),
    status: 200,
    body,
  }),
  unknown: () => ({ text: request("", [], "POST /v2/nothing HTTP/1.1"), status: 404, body: null }),
} as const;
const one = fc
  .tuple(fc.constantFrom("plain", "plain", "plain", "refused", "inChunks", "unknown"), fc.uint8Array({ maxLength: 40 }))
  .map(([kind, bytes]) => kinds[kind](Buffer.from(bytes).toString("latin1")));

test("however a connection's requests are cut and joined, each is taken once and answered in its turn", async () => {
  const home = await open();
  await fc.assert(
    fc.asyncProperty(fc.array(one, { minLength: 1, maxLength: 5 }), fc.array(fc.nat(), { maxLength: 6 }), async (all, places) => {
      home.deliveries.length = 0;
      const text = all.map((each) => each.text).join("");
      const at = [0, ...places.map((place) => place % text.length), text.length].toSorted((a, b) => a - b);
      const talk = home.talk();
      const statuses: number[] = [];
      const writing = talk.write(...at.slice(1).map((end, index) => text.slice(at[index], end)));
      for (const _ of all) statuses.push((await talk.answer()).status);
      await writing;
      talk.socket.destroy();
      expect(statuses).toEqual(all.map(({ status }) => status));
      expect(bodies(home)).toEqual(all.flatMap(({ body }) => (body === null ? [] : [body])));
    }),
    { numRuns: 120 },
  );
});

test.each(["CONNECT e.example:443 HTTP/1.1\r\n\r\n", "GET / HTTP/1.1\r\nHost x\r\n\r\n"])(
  "who is refused and never closes loses the connection: %j",
  { tags: "long" },
  async (bytes) => {
    const home = await createTestServer();
    const socket = connect({ port: await listen(home), host: "127.0.0.1", allowHalfOpen: true });
    onTestFinished(() => void socket.destroy());
    socket.on("error", () => undefined).resume();
    socket.write(bytes);
    await once(socket, "end");
    await expect.poll(() => promisify(home.api.server.getConnections.bind(home.api.server))(), { timeout: 6_000 }).toBe(0);
  },
);

test("who asks for CONNECT and breaks off does no harm", async () => {
  const home = await createTestServer();
  const port = await listen(home);
  const breakOff = async (): Promise<void> => {
    const socket = connect({ port, host: "127.0.0.1" }).on("error", () => undefined);
    await once(socket, "connect");
    socket.write("CONNECT a:1 HTTP/1.1\r\nHost: a:1\r\n\r\n");
    socket.resetAndDestroy();
  };
  // The answer meets the broken connection in one case of a hundred.
  for (let round = 0; round < 60; round++) await Promise.all(Array.from({ length: 10 }, breakOff));
  expect((await home.ask("GET", "/v2/health")).status).toBe(200);
});
