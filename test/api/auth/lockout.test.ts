import { expect, test } from "vitest";
import { createTestServer, operatorPassword, token } from "../testServer.ts";

const tries = 20;
const from = (address: string) => ({ "x-forwarded-for": address });
const basic = (user: string, password: string) => ({
  authorization: `Basic ${Buffer.from(`${user}:${password}`).toString("base64")}`,
});

test("a client gets 429 after many wrong tokens, but a valid token still works", async () => {
  const { ask, clock } = await createTestServer({ trustProxy: true });
  const wrong = (address: string, path = "/v2/keys") =>
    ask("GET", path, { token: `wrong-${Math.random()}`, headers: from(address) });
  for (let at = 0; at < tries; at++) expect((await wrong("192.0.2.1")).status).toBe(401);
  clock.now += 20_000;
  expect(await wrong("192.0.2.1")).toMatchObject({
    status: 429,
    body: {
      error: "token: more than 20 failed attempts in a minute; retry in 40 s, or with valid credentials",
    },
    headers: { "retry-after": "40" },
  });
  expect(
    (await ask("GET", "/v2/keys?svc_token=wrong", { token: null, headers: from("192.0.2.1") })).status,
  ).toBe(429);
  expect((await ask("GET", "/v2/keys", { headers: from("192.0.2.1") })).status).toBe(200);
  expect((await wrong("192.0.2.2")).status).toBe(401);
  clock.now += 40_000;
  expect((await wrong("192.0.2.1")).status).toBe(401);
});

test("all addresses of an IPv6 network count as one client", async () => {
  const { ask } = await createTestServer({ trustProxy: true });
  const statuses: number[] = [];
  for (let at = 0; at <= tries; at++)
    statuses.push(
      (await ask("GET", "/v2/keys", { token: "wrong", headers: from(`2001:db8:0:1::${at + 1}`) })).status,
    );
  expect(statuses).toEqual([...Array.from({ length: tries }, () => 401), 429]);
  expect((await ask("GET", "/v2/keys", { token: "wrong", headers: from("2001:db8:0:2::1") })).status).toBe(
    401,
  );
});

test("an address from an untrusted proxy header is ignored", async () => {
  const { ask } = await createTestServer();
  const statuses: number[] = [];
  for (let at = 0; at <= tries; at++)
    statuses.push((await ask("GET", "/v2/keys", { token: "wrong", headers: from(`192.0.2.${at}`) })).status);
  expect(statuses.at(-1)).toBe(429);
});

test("a request without a token does not count as an attempt", async () => {
  const { ask } = await createTestServer();
  for (let at = 0; at <= 2 * tries; at++)
    expect((await ask("GET", "/v2/keys", { token: null })).status).toBe(401);
});

test("wrong passwords are also counted by user name, whether the user exists or not", async () => {
  const { ask } = await createTestServer({ trustProxy: true });
  for (const user of ["acc_1", "nobody"]) {
    const wrong = (at: number) =>
      ask("GET", "/v2/svc/users", {
        token: null,
        headers: { ...from(`192.0.2.${at}`), ...basic(user, `wrong${at}`) },
      });
    for (let at = 0; at < tries; at++) expect((await wrong(at)).status).toBe(401);
    expect(await wrong(100)).toMatchObject({
      status: 429,
      body: { message: expect.stringMatching(/^account: more than 20/) },
    });
  }
  const good = { token: null, headers: { ...from("192.0.2.1"), ...basic("acc_1", "pass") } };
  expect((await ask("GET", "/v2/svc/users", good)).status).toBe(200);
  expect((await ask("GET", "/v2/keys", { token })).status).toBe(200);
});

test("the operator's password is not checked for the rest of a minute after too many failures", async () => {
  const { ask, clock } = await createTestServer({ trustProxy: true });
  const asOperator = (password: string, address = "192.0.2.1") =>
    ask("GET", "/v2/admin/accounts", {
      token: null,
      headers: { ...from(address), ...basic("operator", password) },
    });
  for (let at = 0; at < tries; at++) expect((await asOperator(`wrong${at}`)).status).toBe(401);
  clock.now += 20_000;
  expect(await asOperator(operatorPassword)).toMatchObject({
    status: 429,
    body: { message: "operator: more than 20 failed attempts in a minute; retry in 40 s" },
    headers: { "retry-after": "40" },
  });
  expect((await asOperator(operatorPassword, "192.0.2.2")).status, "another client").toBe(200);
  clock.now += 40_000;
  expect((await asOperator(operatorPassword)).status).toBe(200);
});

test("the oldest origin is forgotten if there are too many", async () => {
  const { Lockout } = await import("../../../src/api/auth/lockout.ts");
  const { Refusal } = await import("../../../src/engine/core/values/errors.ts");
  const lockout = new Lockout(() => 0);
  const codeFrom = (address: string): string =>
    lockout.recordFailure({ address }, new Refusal("unauthorized", "no")).code;
  for (let at = 0; at < tries; at++) expect(codeFrom("first")).toBe("unauthorized");
  for (let at = 0; at < 9_999; at++) codeFrom(`place ${at}`);
  expect(codeFrom("first"), "still counted").toBe("too-many-failures");
  for (let at = 0; at < 10_000; at++) codeFrom(`other ${at}`);
  expect(codeFrom("first"), "forgotten").toBe("unauthorized");
});
