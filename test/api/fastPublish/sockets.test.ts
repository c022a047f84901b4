import { fc } from "../../seeds.ts";
import { expect, test } from "vitest";
import { token } from "../testServer.ts";
import { bodies, open, pause, request } from "./rawConnection.ts";
import { codeFields } from "../errorFields.ts";

test("publishes on one connection are answered in turn, each in one piece or a few", async () => {
  const server = await open();
  const talk = server.talk();
  for (const pieces of [
    [request("one")],
    [request("two").slice(0, -1), "o"],
    [request("three").slice(0, -3), "r", "e", "e"],
  ]) {
    await talk.write(...pieces);
    expect(await talk.answer()).toMatchObject({
      status: 200,
      head: expect.stringContaining("Keep-Alive: timeout=72"),
    });
  }
  expect([bodies(server), server.usual]).toEqual([["one", "two", "three"], []]);
});

test("Node's parser takes over a connection with a body in many pieces or a head in two", async () => {
  const server = await open();
  const many = server.talk();
  const half = server.talk();
  await many.write(request("12345678").slice(0, -8), ..."12345678");
  expect((await many.answer()).status).toBe(200);
  await half.write(
    "POST /v2/publish/https://e.example/ HT",
    request("half").slice("POST /v2/publish/https://e.example/ HT".length),
  );
  expect((await half.answer()).status).toBe(200);
  expect([bodies(server), server.usual]).toEqual([
    ["12345678", "half"],
    Array(2).fill("POST /v2/publish/https://e.example/"),
  ]);
  await many.write(request("then"));
  expect((await many.answer()).status).toBe(200);
  expect(server.usual).toHaveLength(3);
});

test("a token that is not cached is looked up once for all requests on the fast path", async () => {
  const asked: string[] = [];
  const server = await open({
    wrap: (store) => ({
      ...store,
      read: {
        ...store.read,
        accountByToken: (hash) => (asked.push(hash), pause(20).then(() => store.read.accountByToken(hash))),
      },
    }),
  });
  server.clock.now += 60_000;
  asked.length = 0;
  const one = server.talk();
  const other = server.talk();
  await one.write(request("a"), request("b"));
  await other.write(request("c").slice(0, -1), "c");
  expect((await Promise.all([one.answer(), other.answer()])).map(({ status }) => status)).toEqual([200, 200]);
  expect((await one.answer()).status).toBe(200);
  expect([bodies(server).toSorted(), server.usual]).toEqual([["a", "b", "c"], []]);
  expect(asked.length).toBeLessThanOrEqual(2);
});

test.each(["svc-label=%ff", "svc-delay=%zz", "upstash-delay=%"])(
  "a malformed query is refused with a reason: %s",
  async (query) => {
    const plain = (await open()).talk();
    const parsed = (await open()).talk();
    // From here on Node's parser reads the requests of this connection.
    await parsed.write(
      "POST /v2/publish/https://e.example/ HT",
      request("x").slice("POST /v2/publish/https://e.example/ HT".length),
    );
    expect((await parsed.answer()).status).toBe(200);
    for (const talk of [plain, parsed]) {
      await talk.write(request("x", [], `POST /v2/publish/https://e.example/?${query} HTTP/1.1`));
      const refused = await talk.answer();
      expect(refused.status).toBe(400);
      expect(JSON.parse(refused.body)).toEqual({
        error: expect.stringMatching(/^[\w-]+: \S/),
        ...(query.startsWith("svc-") ? codeFields("invalid") : { code: "invalid" }),
      });
      await talk.write(request("still here"));
      expect((await talk.answer()).status).toBe(200);
    }
  },
);

test("an unknown token is refused by the framework and counted once as an attempt", async () => {
  const server = await open();
  const talk = server.talk();
  for (let tries = 0; tries < 3; tries++) {
    await talk.write(request("x").replace(token, "odd"));
    expect((await talk.answer()).status).toBe(401);
  }
  // A client that half-closes the connection at once gets the response as well.
  const last = server.talk();
  last.socket.end(request("x").replace(token, "odd"), "latin1");
  expect(await last.closed()).toMatch(/^HTTP\/1.1 401 /);
  expect([bodies(server), server.usual.length]).toEqual([[], 4]);
});

test("requests of all kinds that are sent at once are answered in order", async () => {
  const server = await open();
  const talk = server.talk();
  const queues = ["GET /v2/queues HTTP/1.1", "Host: x", `Authorization: Bearer ${token}`, "", ""].join(
    "\r\n",
  );
  await talk.write(request("1"));
  await talk.write(request("2") + queues + request("3", ["Svc-Delay: soon"]));
  const answers = [await talk.answer(), await talk.answer(), await talk.answer(), await talk.answer()];
  expect(answers.map(({ status }) => status)).toEqual([200, 200, 200, 400]);
  expect([bodies(server), answers[2]?.body]).toEqual([["1", "2"], "[]"]);
});

test("many plain publishes in one piece are accepted one after the other", async () => {
  let running = 0;
  let most = 0;
  const server = await open({
    wrap: (store) => ({
      ...store,
      execute: (...given) => {
        most = Math.max(most, ++running);
        return store.execute(...given).finally(() => running--);
      },
    }),
  });
  const talk = server.talk();
  const all = Array.from({ length: 300 }, (_, index) => `${index}`);
  await talk.write(all.map((body) => request(body)).join(""));
  for (const _ of all) expect((await talk.answer()).status).toBe(200);
  expect([bodies(server), server.usual, most]).toEqual([all, [], 1]);
});

const kinds = {
  plain: (body: string) => ({ text: request(body), status: 200, body }),
  refused: (body: string) => ({ text: request(body, ["Svc-Delay: soon"]), status: 400, body: null }),
  inChunks: (body: string) => ({
    text: request(body).replace(
      /Content-Length: \d+\r\n\r\n[^]*/,
      // A replacement text would give `$&` in a body a special meaning.
      () => {
        const chunk = body === "" ? "" : `${body.length.toString(16)}\r\n${body}\r\n`;
        return `Transfer-Encoding: chunked\r\n\r\n${chunk}0\r\n\r\n`;
      },
    ),
    status: 200,
    body,
  }),
  unknown: () => ({ text: request("", [], "POST /v2/nothing HTTP/1.1"), status: 404, body: null }),
} as const;
const one = fc
  .tuple(
    fc.constantFrom("plain", "plain", "plain", "refused", "inChunks", "unknown"),
    fc.uint8Array({ maxLength: 40 }),
  )
  .map(([kind, bytes]) => kinds[kind](Buffer.from(bytes).toString("latin1")));

test("each request of a connection is accepted once and answered in turn, in any pieces", async () => {
  const server = await open();
  await fc.assert(
    fc.asyncProperty(
      fc.array(one, { minLength: 1, maxLength: 5 }),
      fc.array(fc.nat(), { maxLength: 6 }),
      async (all, places) => {
        server.deliveries.length = 0;
        const text = all.map((each) => each.text).join("");
        const at = [0, ...places.map((place) => place % text.length), text.length].toSorted((a, b) => a - b);
        const talk = server.talk();
        const statuses: number[] = [];
        const writing = talk.write(...at.slice(1).map((end, index) => text.slice(at[index], end)));
        for (const _ of all) statuses.push((await talk.answer()).status);
        await writing;
        talk.socket.destroy();
        expect(statuses).toEqual(all.map(({ status }) => status));
        expect(bodies(server)).toEqual(all.flatMap(({ body }) => (body === null ? [] : [body])));
      },
    ),
    { numRuns: 120 },
  );
});
