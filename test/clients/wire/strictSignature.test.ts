import { createHash, createHmac } from "node:crypto";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import type { Arrival } from "../../server/waypost.ts";
import { startDestination } from "../../server/waypost.ts";
import type { ClientTestServer, TestUser } from "../clientTestServer.ts";
import { startClientTestServer } from "../clientTestServer.ts";
import { go } from "./dialects.ts";
import type { Row } from "./exchange.ts";
import { expectReplay } from "./exchange.ts";

// A destination that verifies a signature like a Go program with golang-jwt and encoding/base64. The three
// parts of the token are base64url without padding. The claim `body` is compared character by character with
// base64url with padding. A time that is 0 is absent, and absent times are refused.

type Claims = { iss: string; sub: string; exp: number; nbf: number; body: string };

/** Returns the reason why a strict verifier rejects a request, or null. `now` is in seconds. */
function rejected(
  { headers, body }: Arrival,
  { key, url, now }: { key: string; url: string; now: number },
): string | null {
  const signature = String(headers["upstash-signature"]);
  const parts = signature.split(".");
  const [head = "", payload = "", mac = ""] = parts;
  if (parts.length !== 3 || parts.some((part) => !/^[A-Za-z0-9_-]+$/.test(part)))
    return "the token is not three parts without padding";
  if ((JSON.parse(Buffer.from(head, "base64url").toString()) as { alg: string }).alg !== "HS256")
    return "the algorithm is not HS256";
  if (createHmac("sha256", key).update(`${head}.${payload}`).digest("base64url") !== mac)
    return "the signature is of another key";
  const claims = JSON.parse(Buffer.from(payload, "base64url").toString()) as Claims;
  if (claims.iss !== "Upstash") return `the issuer is ${claims.iss}`;
  if (claims.sub !== url) return `the subject is ${claims.sub}`;
  if (!isTime(claims.exp) || claims.exp <= now) return "the token has expired";
  if (!isTime(claims.nbf) || claims.nbf > now) return "the token is not valid yet";
  const hash = createHash("sha256").update(body).digest("base64").replaceAll("+", "-").replaceAll("/", "_");
  return claims.body === hash ? null : `the hash of the body is ${claims.body} instead of ${hash}`;
}

const isTime = (claim: number): boolean => Number.isInteger(claim) && claim > 0;

const bodies = ["", "text", '{"ex_key": "ex_välue"}', "a".repeat(100_000)];

describe("a strict verifier", () => {
  let house: ClientTestServer;

  beforeAll(async () => {
    house = await startClientTestServer("SQLite");
  });

  afterAll(() => house.close());

  test.each(bodies.map((body) => [body.slice(0, 30), body]))(
    "accepts a message with the body %j and its callback",
    async (_, body) => {
      const newcomer = house.createUser();
      const { first, second } = await delivered(newcomer, body);
      const key = await currentKey(newcomer);
      const now = Math.floor(Date.now() / 1000);
      expect(rejected(first.arrival, { key, now, url: first.url })).toBeNull();
      expect(rejected(second.arrival, { key, now, url: second.url })).toBeNull();
      expect(rejected(first.arrival, { key: "another", now, url: first.url })).toBe(
        "the signature is of another key",
      );
      const changed = { ...first.arrival, body: Buffer.from(`${body}!`) };
      expect(rejected(changed, { key, now, url: first.url })).toMatch(/^the hash of the body is /);
    },
  );

  test("accepts a message after a rotation with the key that was the next one", async () => {
    const newcomer = house.createUser();
    const { first } = await delivered(newcomer, "before");
    const current = await currentKey(newcomer);
    const next = await currentKey(newcomer, "next");
    await expectReplay(go, newcomer, { rows: [{ call: "rotate", send: "POST /v2/keys/rotate" }] });
    const { first: after } = await delivered(newcomer, "after");
    const now = Math.floor(Date.now() / 1000);
    expect(rejected(first.arrival, { key: current, now, url: first.url })).toBeNull();
    expect(rejected(after.arrival, { key: next, now, url: after.url })).toBeNull();
  });
});

/** Publishes a message with a callback. Returns the requests that arrived at both URLs. */
async function delivered(newcomer: TestUser, body: string) {
  const destination = await startDestination(() => ({ status: 200, body: "fine" }));
  const url = `${destination.url}/first?a=1`;
  const callback = `${destination.url}/second`;
  await expectReplay(go, newcomer, {
    rows: [
      { call: "Publish", send: `POST /v2/publish/${url}`, headers: { "Upstash-Callback": callback }, body },
    ],
  });
  await destination.until(({ length }) => length === 2);
  const [first, second] = destination.arrivals as [Arrival, Arrival];
  return { first: { arrival: first, url }, second: { arrival: second, url: callback } };
}

async function currentKey(newcomer: TestUser, which: "current" | "next" = "current"): Promise<string> {
  let key = "";
  const keep = (keys: Record<string, string>) => ({ key: (key = keys[which] ?? "") });
  const row: Row = { call: "Keys().Get", send: "GET /v2/keys", keep };
  await expectReplay(go, newcomer, { rows: [row] });
  return key;
}
