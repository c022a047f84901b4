import { once } from "node:events";
import { connect } from "node:net";
import { expect, test } from "vitest";
import { Refusal } from "../../../src/engine/core/values/errors.ts";
import { otherToken, token } from "../testServer.ts";
import { parseReply, request, send } from "../wire.ts";
import { bearer, open } from "./countedServer.ts";

test.each([
  {
    name: "a token in the query",
    line: `POST /v2/publish/https://e.example/?svc_token=${token} HTTP/1.1`,
    headers: [],
    status: 200,
  },
  { name: "no token", line: "POST /v2/publish/https://e.example/ HTTP/1.1", headers: [], status: 401 },
  {
    name: "an unknown token",
    line: "POST /v2/publish/https://e.example/ HTTP/1.1",
    headers: [bearer("odd")],
    status: 401,
  },
  {
    name: "a sender that waits for 100 Continue",
    line: "POST /v2/publish/https://e.example/ HTTP/1.1",
    headers: [bearer(), "Expect: 100-continue"],
    status: 200,
  },
  {
    name: "another method",
    line: "PUT /v2/publish/https://e.example/ HTTP/1.1",
    headers: [bearer()],
    status: 405,
  },
  {
    name: "another path",
    line: "POST /v2/publisher/https://e.example/ HTTP/1.1",
    headers: [bearer()],
    status: 404,
  },
  { name: "a list to another path", line: "POST /v2/batch/x HTTP/1.1", headers: [bearer()], status: 404 },
])("a publish with $name is answered by the framework", async ({ line, headers, status }) => {
  const { ask, port, usual } = await open();
  await ask("GET", "/v2/queues");
  usual.length = 0;
  const received = await send(port, request(line, headers, "x"));
  expect([parseReply(received.replace(/^HTTP\/1.1 100 Continue\r\n\r\n/, "")).status, usual.length]).toEqual([
    status,
    1,
  ]);
});

test("the framework refuses tokens with limited rights", async () => {
  const { ask, port, usual, store } = await open();
  const made = await ask("POST", "/v2/tokens", { body: JSON.stringify({ verbs: ["read"] }) });
  const publish = async (secret: string): Promise<number> =>
    parseReply(
      await send(port, request("POST /v2/publish/https://e.example/ HTTP/1.1", [bearer(secret)], "x")),
    ).status;
  expect([await publish(made.body.token), await publish(made.body.token)]).toEqual([403, 403]);
  expect(usual.slice(-2)).toHaveLength(2);
  // The account of a valid token may not be known from another token.
  expect(await publish(otherToken)).toBe(200);
  await store.execute("changeAccount", { account: "acc_1", change: { state: "passive" } });
  expect(await publish(token)).toBe(403);
});

test("a publish is refused if its token was replaced since the last publish", async () => {
  const { port, store } = await open();
  const publish = async (): Promise<number> =>
    parseReply(await send(port, request("POST /v2/publish/https://e.example/ HTTP/1.1", [bearer()], "x")))
      .status;
  expect([await publish(), await publish()]).toEqual([200, 200]);
  await store.execute("rotateToken", { account: "acc_1", token: "new", tokenHash: "new", password: "new" });
  expect(await publish()).toBe(401);
});

test("a body without room is refused with Retry-After, and room is released after each body", async () => {
  const { ask, port } = await open({ requestBodyBytes: 100 });
  await ask("GET", "/v2/queues");
  const publish = async (bytes: number): Promise<[number, boolean]> => {
    const { status, head } = parseReply(
      await send(
        port,
        request("POST /v2/publish/https://e.example/ HTTP/1.1", [bearer()], "x".repeat(bytes)),
      ),
    );
    return [status, /^retry-after: 1$/im.test(head)];
  };
  expect(await publish(101)).toEqual([503, true]);
  for (let round = 0; round < 3; round++) expect(await publish(90)).toEqual([200, false]);
});

test.each([
  ["a new connection", ""],
  ["a connection with an earlier request", `GET /v2/queues HTTP/1.1\r\nHost: x\r\n${bearer()}\r\n\r\n`],
])("a body that breaks off on %s publishes nothing and releases its room", async (_connection, before) => {
  const { ask, port, deliveries } = await open({ requestBodyBytes: 100 });
  await ask("GET", "/v2/queues");
  for (let round = 0; round < 3; round++) {
    const socket = connect(port, "127.0.0.1");
    if (before !== "") {
      socket.write(before);
      await once(socket, "data");
    }
    const head = ["POST /v2/publish/https://e.example/ HTTP/1.1", "Host: x", bearer(), "Content-Length: 90"];
    socket.write(`${head.join("\r\n")}\r\n\r\nhalf`);
    await new Promise((resolve) => setTimeout(resolve, 30));
    socket.destroy();
    await new Promise((resolve) => setTimeout(resolve, 30));
  }
  const { status } = parseReply(
    await send(port, request("POST /v2/publish/https://e.example/ HTTP/1.1", [bearer()], "x".repeat(90))),
  );
  expect([status, deliveries.length]).toEqual([200, 1]);
});

test("an internal error is logged and hidden from the sender, and the next request is served", async () => {
  let isOdd = false;
  const { ask, port, lines } = await open({
    wrap: (store) => ({
      ...store,
      execute: (...call) => (isOdd ? Promise.reject(new Error("odd")) : store.execute(...call)),
    }),
  });
  await ask("GET", "/v2/queues");
  const publish = async () =>
    parseReply(await send(port, request("POST /v2/publish/https://e.example/ HTTP/1.1", [bearer()], "x")));
  isOdd = true;
  const { status, body: text } = await publish();
  expect([status, text.includes("odd")]).toEqual([500, false]);
  expect(lines.at(-1)?.fault).toContain("odd");
  isOdd = false;
  expect((await publish()).status).toBe(200);
});

test("the reason why the storage is unavailable is logged and hidden from callers", async () => {
  let isAway = false;
  const full = Object.assign(new Refusal("unavailable", "the storage is unavailable; retry later"), {
    cause: new Error("disk full"),
  });
  const { ask, port, lines } = await open({
    wrap: (store) => ({
      ...store,
      execute: (...call) => (isAway ? Promise.reject(full) : store.execute(...call)),
    }),
  });
  await ask("GET", "/v2/queues");
  isAway = true;
  const plain = parseReply(
    await send(port, request("POST /v2/publish/https://e.example/ HTTP/1.1", [bearer()], "x")),
  );
  const usual = await ask("POST", "/v2/queues", {
    body: JSON.stringify({ queueName: "q" }),
    headers: { "content-type": "application/json" },
  });
  expect([
    plain.status,
    usual.status,
    `${plain.body}${JSON.stringify(usual.body)}`.includes("disk full"),
  ]).toEqual([503, 503, false]);
  expect(lines.slice(-2).map(({ fault }) => fault)).toEqual(["disk full", "disk full"]);
});

test("the framework answers all requests behind a trusted proxy and on an accounts port", async () => {
  const { ask, port, usual } = await open({ trustProxy: true });
  await ask("GET", "/v2/queues");
  usual.length = 0;
  await send(
    port,
    request("POST /v2/publish/https://e.example/ HTTP/1.1", [bearer(), "X-Forwarded-For: 192.0.2.7"], "x"),
  );
  expect(usual).toHaveLength(1);
  const accounts = await open({ servesAccountsOnly: true });
  const { status } = parseReply(
    await send(accounts.port, request("POST /v2/publish/https://e.example/ HTTP/1.1", [bearer()], "x")),
  );
  expect(status).toBe(404);
});
