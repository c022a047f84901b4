import { expect, test } from "vitest";
import { containsToken } from "../../../src/api/settings/forward.ts";
import { createIdGenerator } from "../../../src/engine/core/values/ids.ts";
import { makeAccount } from "../../../src/settings/credentials.ts";
import { makeToken } from "../../../src/engine/core/values/tokenText.ts";
import { createTestServer, token } from "../testServer.ts";
import { endpoint } from "../routes/workflows/workflow.ts";

const secret = "eyJVc2VySUQiOiJhY21lIiwiUGFzc3dvcmQiOiJwYXM/c3cvb3JkIn0+Pz4/Pj8=";
const percent = (text: string): string =>
  [...text].map((letter) => `%${letter.charCodeAt(0).toString(16)}`).join("");

test.each([
  ["as it is", secret],
  ["among other text", `Bearer ${secret}, more`],
  ["without padding", secret.slice(0, -1)],
  ["in the alphabet of URLs", secret.replaceAll("+", "-").replaceAll("/", "_")],
  ["percent-encoded", encodeURIComponent(secret)],
  ["percent-encoded, every character", percent(secret)],
  ["percent-encoded twice", encodeURIComponent(encodeURIComponent(secret))],
  ["percent-encoded twice, every character", percent(percent(secret))],
  [
    "percent-encoded twice, without padding, in a query",
    `a=1&t=${encodeURIComponent(encodeURIComponent(secret.slice(0, -1)))}&b`,
  ],
  [
    "percent-encoded often",
    Array.from({ length: 40 }).reduce<string>((text) => encodeURIComponent(text), secret),
  ],
  ["with a name, as credentials in Basic are", `Basic ${btoa(`user:${secret}`)}`],
  ["as Basic, percent-encoded, without padding", encodeURIComponent(btoa(`u:${secret}`).replace(/=+$/, ""))],
  [
    "in base64 of the alphabet of URLs",
    Buffer.from(`\u00ff\u00fe?${secret}`, "latin1").toString("base64url"),
  ],
  ["in base64 twice", btoa(btoa(`u:${secret}`))],
  ["in base64 after another character", `x${btoa(`u:${secret}`)}`],
  ["in base64, percent-encoded, in base64", btoa(encodeURIComponent(btoa(`u:${secret}`)))],
  ["in hex", Buffer.from(`u:${secret}`).toString("hex")],
])("a token is found %s", (_, value) => {
  expect(containsToken(value, secret)).toBe(true);
});

test("the password of an account that the server created is found by itself", () => {
  const { id, password, token } = makeAccount({
    id: "acme",
    name: "acme",
    secret: () => createIdGenerator(Math.random)("sig", Date.now()),
  });
  for (const value of [password, `Basic ${btoa(`${id}:${password}`)}`])
    expect(containsToken(value, token)).toBe(true);
});

test("the password in a token is found like the token, unless it is short", () => {
  const password = "p4ssw0rd-of-at-least-32-characters";
  const own = makeToken("acme", password);
  for (const value of [
    password,
    `x=${percent(password)}`,
    `Basic ${btoa(`acme:${password}`)}`,
    JSON.stringify({ Password: password }),
  ])
    expect(containsToken(value, own)).toBe(true);
  expect(containsToken(password.slice(1), own)).toBe(false);
  expect(containsToken("a pass in the hand", makeToken("acme", "pass"))).toBe(false);
});

test("the token is removed from content types and from the headers of waiting steps", async () => {
  const server = await createTestServer();
  const type = `text/plain; t=${encodeURIComponent(token)}`;
  await server.ask("POST", "/v2/publish/https://example.com", {
    headers: { "content-type": type },
    body: "x",
  });
  expect(JSON.stringify(server.delivery().message.headers)).not.toContain("t=");
  await server.ask("POST", `/v2/trigger/${endpoint}`, { headers: { "svc-workflow-runid": "r" } });
  const waiting = {
    url: endpoint,
    timeoutHeaders: { authorization: [`Bearer ${token}`], "svc-forward-x": [percent(token), "other"] },
  };
  const body = JSON.stringify({ ...waiting, step: { stepId: 1, stepName: "w", stepType: "Wait" } });
  expect(
    (await server.ask("POST", "/v2/wait/e", { headers: { "svc-workflow-runid": "r" }, body })).status,
  ).toBe(200);
  expect((await server.ask("GET", "/v2/waiters/e")).body[0].timeoutHeaders).toEqual({
    "Svc-Forward-X": ["other"],
  });
});

test.each([
  "",
  "100 % sure",
  "%zz %2",
  "a%20b%2520c",
  "text/plain; q=0.5",
  secret.slice(0, 30),
  encodeURIComponent("x/y=z"),
])("%s does not contain the token", (value) => {
  expect(containsToken(value, secret)).toBe(false);
});

test("a header that contains the token in any encoding is not forwarded, and others are", async () => {
  const server = await createTestServer();
  const twice = encodeURIComponent(encodeURIComponent(token));
  const headers = {
    "svc-header-forward": "true",
    "x-twice": twice,
    "x-bare": token.replace(/=+$/, ""),
    "x-other": "a%2520b",
  };
  expect((await server.ask("POST", "/v2/publish/https://example.com", { headers, body: "x" })).status).toBe(
    200,
  );
  const names = server.delivery().message.headers.map(([name]) => name.toLowerCase());
  expect(names).toContain("x-other");
  expect(names).not.toEqual(expect.arrayContaining(["x-twice"]));
  expect(names).not.toEqual(expect.arrayContaining(["x-bare"]));
});
