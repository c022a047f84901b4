import { hash } from "node:crypto";
import { beforeEach, describe, expect, onTestFinished, test } from "vitest";
import {
  alarm as wakeAfter,
  elapsed,
  idleAlarm as wakeWhenIdle,
  createLongWork,
} from "../../../src/engine/clock/clock.ts";
import { routes } from "../../../src/operations/routes.ts";
import { createApi } from "../../../src/api/server/fastify.ts";
import { readConfig } from "../../../src/settings/config.ts";
import { toReportedEgress } from "../../../src/settings/egressSettings.ts";
import type { TestServer } from "../../api/testServer.ts";
import { testTime, createTestServer, otherToken } from "../../api/testServer.ts";
import { call, change, destination, github as verification, make, rejectionsOf } from "./sourceRequests.ts";

let server: TestServer;

beforeEach(async () => {
  server = await createTestServer();
});

describe("a source", () => {
  test("is created with a URL that is shown once and stored only as a hash", async () => {
    const reply = await server.ask("POST", "/v2/sources", {
      body: JSON.stringify({
        name: "GitHub",
        destination,
        verification,
        settings: { "Svc-Retries": "5", "Svc-Forward-X-A": ["1", "2"] },
      }),
    });
    const { sourceId, url } = reply.body as { sourceId: string; url: string };
    expect(url).toMatch(/^http:\/\/localhost:80\/v2\/in\/[\w-]{32}$/);
    const shown = {
      sourceId,
      name: "GitHub",
      destination,
      settings: { "Svc-Retries": "5", "Svc-Forward-X-A": ["1", "2"] },
      verification: { scheme: "github", secrets: 1 },
      deduplicate: true,
      paused: false,
      createdAt: testTime,
      accepted: 0,
      rejected: 0,
    };
    expect(reply).toMatchObject({ status: 201, body: { ...shown, url } });
    expect(await server.ask("GET", `/v2/sources/${sourceId}`)).toMatchObject({ status: 200, body: shown });
    const list = await server.ask("GET", "/v2/sources");
    expect(list.body).toEqual({ sources: [shown] });
    const secret = url.split("/").at(-1) ?? "";
    const kept = JSON.stringify(
      await server.store.read.listResources("sources", { account: "acc_1", limit: 10 }),
    );
    expect(kept).toContain(hash("sha256", secret, "hex"));
    expect(kept).not.toContain(secret);
    expect(JSON.stringify(list.body)).not.toContain("gh-secret");
  });

  test("has a URL under the public URL of the server", async () => {
    const api = createApi({
      routes,
      store: server.store,
      now: () => server.clock.now,
      retention: { log: 1, deadLetters: 1 },
      trustProxy: false,
      wakeWhenIdle,
      wakeAfter,
      elapsed,
      longWork: createLongWork(),
      log: () => {},
      notReadyReason: () => null,
      listConditions: async () => [],
      egress: toReportedEgress(readConfig({}, {})),
      health: () => ({}),
      publicUrl: "https://queue.example/base",
    });
    onTestFinished(() => api.close());
    const { url } = await make({ ...server, ask: askOf(api) });
    expect(url).toMatch(/^https:\/\/queue\.example\/base\/v2\/in\/[\w-]{32}$/);
  });

  test("is listed in pages", async () => {
    const ids: string[] = [];
    for (let number = 0; number < 5; number++) ids.push((await make(server)).sourceId);
    const found: string[] = [];
    let cursor: string | undefined;
    do {
      const { body } = await server.ask(
        "GET",
        `/v2/sources?count=2${cursor === undefined ? "" : `&cursor=${cursor}`}`,
      );
      found.push(...(body.sources as { sourceId: string }[]).map(({ sourceId }) => sourceId));
      cursor = body.cursor as string | undefined;
    } while (cursor !== undefined);
    expect(found).toEqual(ids);
    expect((await server.ask("GET", "/v2/sources?cursor=%27")).status).toBe(400);
  });

  test("is refused beyond 1,000 sources", async () => {
    const row = { name: "", destination, headers: [], verification: null, deduplicate: true, paused: false };
    for (let number = 0; number < 1000; number++)
      await server.store.execute("createSource", { account: "acc_1", secretHash: String(number), ...row });
    const reply = await server.ask("POST", "/v2/sources", { body: JSON.stringify({ destination }) });
    expect(reply).toMatchObject({
      status: 412,
      body: { error: expect.stringContaining("sources: there are 1000") },
    });
    await make(server, {}, otherToken);
  });

  test.each([
    [{}, 400, "destination: is missing"],
    [{ destination: 1 }, 400, "destination: is missing or not a string"],
    [{ destination: "" }, 400, "destination: a non-empty destination must be provided"],
    [{ destination: "ftp://x" }, 400, "destination: "],
    [{ destination: "nobody" }, 404, "use an existing URL group or a URL"],
    [{ destination, colour: "red" }, 400, "colour: unknown field"],
    [{ destination, settings: { "Svc-Retrys": "1" } }, 400, "did you mean Svc-Retries"],
    [{ destination, settings: { "Svc-Retries": "many" } }, 400, "Svc-Retries: "],
    [{ destination, settings: { "Svc-Retries": "1000000" } }, 412, "settings: retries: "],
    [
      { destination, settings: { "X-A": "1" } },
      400,
      "settings.X-A: not a setting; use Svc-Forward-X-A to deliver a header",
    ],
    [
      { destination, settings: { "Svc-Deduplication-Id": "1" } },
      400,
      "would make every call after the first a duplicate",
    ],
    [{ destination, settings: { "Svc-Cron": "* * * * *" } }, 400, "Svc-Cron: "],
    [{ destination, settings: { "Svc-Callback": "nowhere" } }, 400, "Svc-Callback: "],
    [{ destination, settings: { "Svc-Forward-X": "a\r\nb" } }, 400, "Svc-Forward-X: "],
    [
      { destination, settings: { "Svc-Forward-X": `REDACTED:${"0".repeat(64)}` } },
      400,
      "give the original value",
    ],
    [
      { destination, settings: { "Svc-Retries": 3 } },
      400,
      "settings.Svc-Retries: is neither a string nor a list of strings",
    ],
    [{ destination, settings: "x" }, 400, "settings: "],
    [{ destination, settings: JSON.parse('{"__proto__":"1"}') }, 400, "settings.__proto__: unknown field"],
    [
      { destination, verification: { scheme: "morse", secret: "s" } },
      400,
      "verification.scheme: is missing, or none of stripe, github, ",
    ],
    [
      { destination, verification: { secret: "s" } },
      400,
      "verification.scheme: is missing, or none of stripe, github, ",
    ],
    [{ destination, verification: { scheme: "github" } }, 400, "verification.secret: is missing"],
    [
      { destination, verification: { scheme: "github", secret: ["1", "2", "3", "4", "5"] } },
      400,
      "or a list of 1 to 4 valid secrets",
    ],
    [{ destination, verification: { scheme: "github", secret: "" } }, 400, "verification.secret: is empty"],
    [{ destination, verification: { scheme: "hmac", secret: "s" } }, 400, "verification.header: is missing"],
    [
      { destination, verification: { scheme: "hmac", secret: "s", header: "X-S", algorithm: "md5" } },
      400,
      "algorithm: must be one of sha1, sha256, sha512",
    ],
    [
      {
        destination,
        verification: {
          scheme: "hmac",
          secret: "s",
          header: "X-S",
          timestamp: { header: "X-T", toleranceSeconds: 0 },
        },
      },
      400,
      "toleranceSeconds: is less than 1",
    ],
    [{ destination, verification: { scheme: "github" } }, 400, "verification.secret: "],
    [
      { destination, verification: { scheme: "standard", secret: "tell-nobody!" } },
      400,
      "verification.secret: ",
    ],
    [{ destination, paused: "yes" }, 400, "paused: is neither true nor false"],
    [{ destination, name: "n".repeat(513) }, 400, "name: is longer than 512 characters"],
  ])("%o is refused", async (body, status, error) => {
    const reply = await server.ask("POST", "/v2/sources", { body: JSON.stringify(body) });
    expect(reply).toMatchObject({ status, body: { error: expect.stringContaining(error) } });
    expect(reply.body.error).not.toContain("tell-nobody!");
    expect((await server.ask("GET", "/v2/sources")).body).toEqual({ sources: [] });
  });

  test("shows how it verifies an own signature, without the secret and the verify token", async () => {
    const open = { scheme: "hmac", header: "X-Signature", signed: "{timestamp}.{body}" };
    const { sourceId } = await make(server, {
      verification: {
        ...{
          ...open,
          secret: ["hidden-1", "hidden-2"],
          timestamp: { header: "X-Time", unit: "milliseconds" },
        },
        ...{ eventIdHeader: "X-Event", handshake: { kind: "hub", verifyToken: "hidden-3" } },
      },
    });
    const shown = await server.ask("GET", `/v2/sources/${sourceId}`);
    expect(shown.body.verification).toEqual({
      ...{ ...open, secrets: 2, algorithm: "sha256", encoding: "hex", prefix: "", eventIdHeader: "X-Event" },
      timestamp: { header: "X-Time", unit: "milliseconds", toleranceSeconds: 300 },
      handshake: { kind: "hub" },
    });
    const listed = await server.ask("GET", "/v2/sources");
    expect(JSON.stringify([shown.body, listed.body])).not.toContain("hidden-");
    const handshake = { kind: "echo", parameter: "challenge" };
    const changed = await change(server, sourceId, {
      verification: { scheme: "hmac", secret: "hidden-4", header: "X-Signature", handshake },
    });
    expect(changed.body.verification).toEqual({
      ...{ scheme: "hmac", secrets: 1, header: "X-Signature", algorithm: "sha256", encoding: "hex" },
      ...{ prefix: "", signed: "{body}", handshake },
    });
  });

  test("keeps the properties that a change leaves out", async () => {
    const { sourceId, path } = await make(server, { settings: { "Svc-Retries": "5" } });
    expect(
      (await change(server, sourceId, { name: "n", settings: { "Svc-Method": "PUT" } })).body,
    ).toMatchObject({
      name: "n",
      destination,
      settings: { "Svc-Method": "PUT" },
      paused: false,
      deduplicate: true,
      verification: null,
    });
    expect((await change(server, sourceId, { destination: "https://two.example/" })).status).toBe(200);
    expect((await call(server, path, { body: "x" })).status).toBe(200);
    expect(server.delivery().message).toMatchObject({
      url: "https://two.example/",
      method: "PUT",
      retries: 3,
    });
    expect(
      (await change(server, sourceId, { verification: { scheme: "stripe", secret: ["a", "b"] } })).body
        .verification,
    ).toEqual({
      scheme: "stripe",
      secrets: 2,
    });
    expect((await call(server, path, { body: "x" })).status).toBe(401);
    expect((await change(server, sourceId, { verification: null })).body.verification).toBeNull();
    expect((await call(server, path, { body: "x" })).status).toBe(200);
    for (const wrong of [
      { settings: { "Svc-Retries": "x" } },
      { destination: "x y" },
      { secretHash: "x" },
      { url: "x" },
    ])
      expect((await change(server, sourceId, wrong)).status).toBe(400);
    expect((await change(server, "src_unknown", { name: "n" })).status).toBe(404);
  });

  test("hides the parts that its settings redact", async () => {
    const settings = {
      "Svc-Forward-Authorization": "Bearer deep",
      "Svc-Redact-Fields": "header[Authorization], body",
    };
    const made = await make(server, { settings, verification });
    const shown = await server.ask("GET", `/v2/sources/${made.sourceId}`);
    expect(shown.body.settings).toEqual({
      ...settings,
      "Svc-Forward-Authorization": `REDACTED:${hash("sha256", "Bearer deep", "hex")}`,
    });
    expect((await change(server, made.sourceId, { settings: shown.body.settings as object })).status).toBe(
      400,
    );
    await call(server, made.path, { body: "private" });
    expect((await rejectionsOf(server, made))[0]).toMatchObject({
      body: `REDACTED:${hash("sha256", "private", "hex")}`,
    });
  });
});

function askOf(api: TestServer["api"]): TestServer["ask"] {
  return async (method, url, { headers = {}, body } = {}) => {
    const request = {
      method: method as "POST",
      url,
      headers: { authorization: "Bearer eyJVc2VySUQiOiJ1c2VyIiwiUGFzc3dvcmQiOiJwYXNzIn0=", ...headers },
    };
    const response = await api.inject({ ...request, ...(body === undefined ? {} : { payload: body }) });
    return { status: response.statusCode, body: response.json(), headers: response.headers };
  };
}
