import { expect, test } from "vitest";
import { createTestServer, operatorPassword, token } from "../testServer.ts";

const tries = 20;
const from = (address: string) => ({ "x-forwarded-for": address });
const basic = (user: string, password: string) => ({ authorization: `Basic ${Buffer.from(`${user}:${password}`).toString("base64")}` });

test("after many wrong tokens of one client others are answered with 429, and a good one as ever", async () => {
  const { ask, clock } = await createTestServer({ trustProxy: true });
  const wrong = (address: string, path = "/v2/keys") => ask("GET", path, { token: `wrong-${Math.random()}`, headers: from(address) });
  for (let at = 0; at < tries; at++) expect((await wrong("192.0.2.1")).status).toBe(401);
  clock.now += 20_000;
  expect(await wrong("192.0.2.1")).toMatchObject({
    status: 429,
    body: { error: "token: more than 20 tries in a minute failed; ask again in 40 s, or with what is known to be good" },
    headers: { "retry-after": "40" },
  });
  expect((await ask("GET", "/v2/keys?svc_token=wrong", { token: null, headers: from("192.0.2.1") })).status).toBe(429);
  expect((await ask("GET", "/v2/keys", { headers: from("192.0.2.1") })).status).toBe(200);
  expect((await wrong("192.0.2.2")).status).toBe(401);
  clock.now += 40_000;
  expect((await wrong("192.0.2.1")).status).toBe(401);
});

test("one client has all addresses of an IPv6 network", async () => {
  const { ask } = await createTestServer({ trustProxy: true });
  const statuses: number[] = [];
  for (let at = 0; at <= tries; at++)
    statuses.push((await ask("GET", "/v2/keys", { token: "wrong", headers: from(`2001:db8:0:1::${at + 1}`) })).status);
  expect(statuses).toEqual([...Array.from({ length: tries }, () => 401), 429]);
  expect((await ask("GET", "/v2/keys", { token: "wrong", headers: from("2001:db8:0:2::1") })).status).toBe(401);
});

test("an address that nobody vouches for is not believed", async () => {
  const { ask } = await createTestServer();
  const statuses: number[] = [];
  for (let at = 0; at <= tries; at++)
    statuses.push((await ask("GET", "/v2/keys", { token: "wrong", headers: from(`192.0.2.${at}`) })).status);
  expect(statuses.at(-1)).toBe(429);
});

test("a request without a token is no try", async () => {
  const { ask } = await createTestServer();
  for (let at = 0; at <= 2 * tries; at++) expect((await ask("GET", "/v2/keys", { token: null })).status).toBe(401);
});

test("wrong passwords are counted by user name as well, whether there is such a user or not", async () => {
  const { ask } = await createTestServer({ trustProxy: true });
  for (const user of ["acc_1", "nobody"]) {
    const wrong = (at: number) =>
      ask("GET", "/v2/svc/users", { token: null, headers: { ...from(`192.0.2.${at}`), ...basic(user, `wrong${at}`) } });
    for (let at = 0; at < tries; at++) expect((await wrong(at)).status).toBe(401);
    expect(await wrong(100)).toMatchObject({ status: 429, body: { message: expect.stringMatching(/^account: more than 20/) } });
  }
  const good = { token: null, headers: { ...from("192.0.2.1"), ...basic("acc_1", "pass") } };
  expect((await ask("GET", "/v2/svc/users", good)).status).toBe(200);
  expect((await ask("GET", "/v2/keys", { token })).status).toBe(200);
});

test("of the operator no more passwords are looked at for the rest of a minute, from a client that tried too many", async () => {
  const { ask, clock } = await createTestServer({ trustProxy: true });
  const asOperator = (password: string, address = "192.0.2.1") =>
    ask("GET", "/v2/admin/accounts", { token: null, headers: { ...from(address), ...basic("operator", password) } });
  for (let at = 0; at < tries; at++) expect((await asOperator(`wrong${at}`)).status).toBe(401);
  clock.now += 20_000;
  expect(await asOperator(operatorPassword)).toMatchObject({
    status: 429,
    body: { message: "operator: more than 20 tries in a minute failed; ask again in 40 s" },
    headers: { "retry-after": "40" },
  });
  expect((await asOperator(operatorPassword, "192.0.2.2")).status, "another client").toBe(200);
  clock.now += 40_000;
  expect((await asOperator(operatorPassword)).status).toBe(200);
});

test("places beyond those that are remembered push out the oldest ones", async () => {
  const { Lockout } = await import("../../../src/api/auth/lockout.ts");
  const { Refusal } = await import("../../../src/core/values/errors.ts");
  const lockout = new Lockout(() => 0);
  const codeFrom = (address: string): string => lockout.recordFailure({ address }, new Refusal("unauthorized", "no")).code;
  for (let at = 0; at < tries; at++) expect(codeFrom("first")).toBe("unauthorized");
  for (let at = 0; at < 9_999; at++) codeFrom(`place ${at}`);
  expect(codeFrom("first"), "it is still remembered").toBe("too-many-failures");
  for (let at = 0; at < 10_000; at++) codeFrom(`other ${at}`);
  expect(codeFrom("first"), "it is forgotten").toBe("unauthorized");
});
