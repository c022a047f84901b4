import { describe, expect, test } from "vitest";
import { shownPath } from "../../../src/api/route/requestLog.ts";
import { routes } from "../../../src/operations/routes.ts";
import { createTestServer, token } from "../testServer.ts";
import { listen, parseReply, request, send } from "../wire.ts";

const shouted = (path: string): string =>
  path
    .split("/")
    .map((part) => (part.startsWith("{") ? part : part.toUpperCase()))
    .join("/");

describe("a path", () => {
  test.each(routes.map(({ method, path }) => ({ method, path })))(
    "of $method $path is found in capitals",
    async ({ method, path }) => {
      const { ask } = await createTestServer();
      const target = shouted(path)
        .replace("{destination}", "ftp://x")
        .replaceAll(/\{\w+\}/g, "Name");
      const own = path.replace("{destination}", "ftp://x").replaceAll(/\{\w+\}/g, "Name");
      const asked = await ask(method, target, { token: "none" });
      const expected = await ask(method, own, { token: "none" });
      expect(asked.body.error ?? asked.body).toEqual(expected.body.error ?? expected.body);
      expect(asked.status).toBe(expected.status);
      expect(String(asked.body.error)).not.toMatch(/^path: does not exist; GET/);
    },
  );

  test("matches in any case, while names, ids and destinations keep theirs", async () => {
    const server = await createTestServer();
    const { ask } = server;
    const headers = { "upstash-cron": "*/5 * * * *", "upstash-schedule-id": "Daily-One" };
    expect((await ask("POST", "/v2/Schedules/https://E.example/Path?Q=1", { headers })).body).toEqual({
      scheduleId: "Daily-One",
    });
    expect((await ask("GET", "/V2/SCHEDULES/Daily-One")).body).toMatchObject({
      destination: "https://E.example/Path?Q=1",
    });
    expect((await ask("GET", "/v2/Schedules/daily-one")).status).toBe(404);
    expect((await ask("POST", "/v2/Schedules/Daily-One/PAUSE")).body).toEqual({
      scheduleId: "Daily-One",
      isPaused: true,
    });
    expect((await ask("PATCH", "/v2/schedules/Daily-One/Resume")).body).toEqual({
      scheduleId: "Daily-One",
      isPaused: false,
    });
    expect((await ask("DELETE", "/v2/Schedules/Daily-One")).body).toEqual({ deleted: 1 });

    await ask("POST", "/v2/Topics/Orders/Endpoints", {
      body: JSON.stringify({ endpoints: [{ url: "https://A.example/X" }] }),
    });
    expect((await ask("POST", "/V2/Publish/Orders")).body).toMatchObject([{ url: "https://A.example/X" }]);
    expect((await ask("POST", "/v2/publish/orders")).status).toBe(404);
    const { body } = await ask("POST", "/v2/ENQUEUE/My-Queue/https://E.example/Path");
    expect(body).toMatchObject({ url: "https://E.example/Path" });
    expect((await ask("GET", `/v2/Messages/${body.messageId}`)).body).toMatchObject({
      queueName: "My-Queue",
    });
    expect((await ask("GET", "/v2/QUEUES/My-Queue")).body).toMatchObject({ name: "My-Queue" });
    expect((await ask("GET", "/v2/Workflows/MessageLogs")).body).toEqual({ events: [] });
  });

  test("matches in any case for secrets, hints and refusals", async () => {
    const { ask } = await createTestServer();
    const made = await ask("POST", "/v2/Sources", {
      body: JSON.stringify({ name: "s", destination: "https://e.example" }),
    });
    const secret = String(made.body.url).split("/").at(-1) ?? "";
    expect((await ask("POST", `/V2/IN/${secret}`, { token: null })).status).toBe(200);
    expect((await ask("POST", `/V2/IN/${secret.toLowerCase()}`, { token: null })).status).toBe(404);
    expect(await ask("PUT", "/v2/Keys")).toMatchObject({ status: 405, headers: { allow: "GET, HEAD" } });
    expect(await ask("POST", "/v2/Wait/%zz")).toMatchObject({
      status: 412,
      body: { error: expect.stringMatching(/^path: /) },
    });
    const unauthorized = await ask("GET", "/V2/Svc/Users", { token: null });
    expect(unauthorized).toMatchObject({ status: 401, body: { code: "unauthorized" } });
    expect(unauthorized.headers["www-authenticate"]).toMatch(/^Basic /);
  });

  test("in any case hides the same secrets in the log", () => {
    const shown = (path: string): string => shownPath({ path, query: null });
    expect(shown("/V2/PUBLISH/https://e.example/secret")).toBe("/V2/PUBLISH/https://e.example");
    expect(shown("/v2/Enqueue/Q/https://e.example/secret")).toBe("/v2/Enqueue/Q/https://e.example");
    expect(shown("/v2/Schedules/https://e.example/secret")).toBe("/v2/Schedules/https://e.example");
    expect(shown("/V2/IN/secret")).toBe("/V2/IN/…");
    expect(shown("/V2/Hooks/secret")).toBe("/V2/Hooks/…");
  });

  test("matches in any case for plain requests, which take the fast path", async () => {
    const server = await createTestServer();
    const usual: string[] = [];
    server.api.addHook("onResponse", async ({ originalUrl }) => void usual.push(originalUrl));
    const port = await listen(server);
    await server.ask("GET", "/v2/keys");
    usual.length = 0;
    const ask = async (line: string, body = "x") =>
      parseReply(await send(port, request(`${line} HTTP/1.1`, [`Authorization: Bearer ${token}`], body)));
    expect(JSON.parse((await ask("POST /V2/Publish/https://E.example/X")).body)).toMatchObject({
      url: "https://E.example/X",
    });
    const steps = {
      "Upstash-Workflow-RunId": "Run_1",
      "Upstash-Workflow-Init": "true",
      "Upstash-Workflow-Url": "https://e.example",
    };
    const list = JSON.stringify([{ destination: "https://e.example", headers: steps }]);
    expect((await ask("POST /v2/Batch", list)).status).toBe(200);
    expect((await ask("DELETE /v2/Workflows/Runs/Run_1?cancel=false")).status).toBe(200);
    expect([...server.memory.tables.runs.values()]).toMatchObject([{ runId: "Run_1", state: "RUN_SUCCESS" }]);
    expect(usual).toEqual([]);
  });
});
