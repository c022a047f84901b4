import { describe, expect, test } from "vitest";
import type { TestServer } from "../../api/testServer.ts";
import { testTime, createTestServer } from "../../api/testServer.ts";
import type { Made } from "./sourceRequests.ts";
import { github, make, rejectionsOf } from "./sourceRequests.ts";
import { codeFields } from "../../api/errorFields.ts";

const rejectedOf = async (server: TestServer, { sourceId }: Made): Promise<number> =>
  (await server.ask("GET", `/v2/sources/${sourceId}`)).body.rejected as number;

describe("calls that are rejected", () => {
  test("are kept with reason, headers and body, without secrets", async () => {
    const server = await createTestServer();
    const made = await make(server, { verification: github });
    const headers = {
      authorization: "Bearer t0ken",
      cookie: "c00kie",
      "x-hub-signature-256": `sha256=${"0".repeat(64)}`,
      referer: made.path,
    };
    const body = `${"é".repeat(10_000)} ${made.path}`;
    const reply = await server.ask("POST", made.path, { headers, body, token: null });
    expect(reply.status).toBe(401);
    expect(reply.body).toEqual({
      error: "call: not accepted; the owner of this URL can see why",
      ...codeFields("unauthorized"),
    });
    const [rejection] = await rejectionsOf(server, made);
    expect(rejection).toMatchObject({
      time: testTime,
      method: "POST",
      callerIP: "127.0.0.1",
      bodySize: Buffer.byteLength(body),
      body: "é".repeat(8192),
      reason: expect.stringContaining("X-Hub-Signature-256: the signature does not match"),
      header: {
        "X-Hub-Signature-256": [`sha256=${"0".repeat(64)}`],
        Authorization: ["(not shown)"],
        Cookie: ["(not shown)"],
        Referer: ["(not shown)"],
      },
    });
    await server.ask("POST", made.path, {
      body: `{"hook":"https://queue.example${made.path}"}`,
      token: null,
    });
    const all = await rejectionsOf(server, made);
    expect(all[0]).toMatchObject({ body: `{"hook":"https://queue.example/v2/in/${"*".repeat(32)}"}` });
    for (const text of [made.secret, "t0ken", "c00kie", "gh-secret"])
      expect(JSON.stringify(all)).not.toContain(text);
    const bytes = Buffer.from([0xff, 0xfe]);
    await server.ask("POST", made.path, { body: bytes, token: null });
    expect((await rejectionsOf(server, made))[0]).toMatchObject({ bodyBase64: bytes.toString("base64") });
    expect(server.deliveries).toEqual([]);
  });

  test("include a call whose headers and those of the source are too large together", async () => {
    const server = await createTestServer();
    const made = await make(server, { settings: { "Svc-Forward-X-Own": "o".repeat(40_000) } });
    const reply = await server.ask("POST", made.path, {
      headers: { "x-theirs": "t".repeat(30_000) },
      body: "x",
      token: null,
    });
    expect(reply).toMatchObject({
      status: 400,
      body: { error: "call: cannot be published; the owner of this URL can see why" },
    });
    const [rejection] = await rejectionsOf(server, made);
    expect(rejection).toMatchObject({
      reason: expect.stringContaining("headers: 70"),
      header: { "X-Theirs": ["t".repeat(1024)] },
    });
    expect(server.deliveries).toEqual([]);
  });

  test("have a body that is cut at the end of a character", async () => {
    const server = await createTestServer();
    const made = await make(server, { verification: github });
    await server.ask("POST", made.path, { body: `a${"é".repeat(10_000)}`, token: null });
    expect((await rejectionsOf(server, made))[0]).toMatchObject({ body: `a${"é".repeat(8191)}` });
  });

  test(
    "keep twenty of 10,000 calls, and count the others in the next rejection that is kept",
    { tags: "long" },
    async () => {
      let commands = 0;
      const server = await createTestServer({
        wrap: (store) => ({
          ...store,
          execute: (name, input, haste) => {
            if (name === "keepRejection") commands++;
            return store.execute(name, input, haste);
          },
        }),
      });
      const made = await make(server, { verification: github });
      const bad = () => server.api.inject({ method: "POST", url: made.path, payload: "bad" });
      for (let round = 0; round < 100; round++) {
        const replies = await Promise.all(Array.from({ length: 100 }, bad));
        expect(replies.every(({ statusCode }) => statusCode === 401)).toBe(true);
      }
      expect(await rejectionsOf(server, made)).toHaveLength(20);
      expect(await rejectedOf(server, made)).toBe(10_000);
      expect(commands).toBeLessThanOrEqual(200);
      server.clock.now += 1_000;
      await bad();
      const [newest, ...others] = await rejectionsOf(server, made);
      expect(newest).toMatchObject({ notKept: 9_980, time: server.clock.now });
      expect(others).toHaveLength(20);
      expect(await rejectedOf(server, made)).toBe(10_001);
      for (let call = 0; call < 150; call++) {
        server.clock.now += 1_000;
        await bad();
      }
      expect(await rejectionsOf(server, made)).toHaveLength(100);
    },
  );
});
