import { hash } from "node:crypto";
import { describe, expect, test } from "vitest";
import { createTestServer, testTime } from "../../testServer.ts";
import { b, serverWith, patch, path, published, a } from "./groupRequests.ts";

describe("default headers", () => {
  test("are shown as given and replaced as a whole", async () => {
    const server = await serverWith();
    const headers = { "Svc-Header-Forward": ["true"], "upstash-Retries": "3", "Svc-Forward-X-A": ["1", "2"] };
    const shown = { "Svc-Header-Forward": ["true"], "upstash-Retries": ["3"], "Svc-Forward-X-A": ["1", "2"] };
    expect(await patch(server, headers)).toMatchObject({
      status: 200,
      body: { headers: shown, endpoints: [{ url: a }, { url: b }] },
    });
    expect((await server.ask("GET", path)).body.headers).toEqual(shown);
    await patch(server, { "Svc-Label": "x" });
    expect((await server.ask("GET", "/v2/topics")).body[0].headers).toEqual({ "Svc-Label": ["x"] });
    await patch(server, {});
    expect((await server.ask("GET", path)).body).not.toHaveProperty("headers");
  });

  test("of an unknown group are refused", async () => {
    const error =
      "name: URL group orders does not exist; GET /v2/topics lists the groups, " +
      "POST /v2/topics/orders/endpoints creates this one";
    expect(await patch(await createTestServer(), { "Svc-Retries": "1" })).toMatchObject({
      status: 404,
      body: { error },
    });
  });

  test.each<[headers: unknown, status: number, error: string]>([
    [{ "Svc-Retrys": "1" }, 400, "Svc-Retrys: unknown setting; did you mean Svc-Retries?"],
    [{ "Svc-Retries": "many" }, 400, 'Svc-Retries: "many" is not a whole number of 0 or more'],
    [{ "Svc-Retries": ["1", "2"] }, 400, "Svc-Retries: given twice with different values; remove one"],
    [
      { "Svc-Retries": "1", "upstash-retries": "2" },
      400,
      "upstash-retries: also given as Svc-Retries with a different value; remove one",
    ],
    [{ "Svc-Retries": "1000000" }, 412, "retries: 1000000 exceeds the limit of 1000"],
    [{ "Svc-Delay": "400d" }, 412, "delay: 400d exceeds the limit of 366d"],
    [
      { "Svc-Cron": "* * * * *" },
      400,
      "Svc-Cron: only valid for schedules; use POST /v2/schedules/{destination}",
    ],
    [
      { "Svc-Queue-Name": "q" },
      400,
      "Svc-Queue-Name: only valid for schedules; use POST /v2/enqueue/{queue}/{destination} to send a " +
        "message through a queue",
    ],
    [
      { "Svc-Flow-Control-Key": "k" },
      400,
      "Svc-Flow-Control-Key: requires Flow-Control-Value, for example parallelism=10",
    ],
    [{ "Svc-Callback-Retries": "1" }, 400, "Svc-Callback-Retries: requires Svc-Callback"],
    [
      { "Svc-Forward-A": "1\r\nB: 2" },
      400,
      "Svc-Forward-A: the value contains characters that an HTTP header cannot carry; remove them",
    ],
    [{ "X-Own": "1" }, 400, "headers.X-Own: not a setting; use Svc-Forward-X-Own to deliver a header"],
    [{ "Svc-Retries": 3 }, 400, "headers.Svc-Retries: is neither a string nor a list of strings"],
    [{ "Svc-Retries": [3] }, 400, "headers.Svc-Retries"],
    [["Svc-Retries"], 400, "headers: is missing or not an object"],
    [
      { "Svc-Forward-A": "x".repeat(65_536) },
      412,
      "headers: 65549 characters of names and values, the limit is 65536",
    ],
  ])("%.60j are refused", async (headers, status, error) => {
    const server = await serverWith({ "Svc-Label": "kept" });
    const reply = await patch(server, headers);
    expect(reply.status).toBe(status);
    expect(reply.body.error.slice(0, error.length)).toBe(error);
    expect((await server.ask("GET", path)).body.headers).toEqual({ "Svc-Label": ["kept"] });
  });

  test("named __proto__ are refused", async () => {
    const server = await serverWith({ "Svc-Label": "kept" });
    const reply = await server.ask("PATCH", path, { body: '{"headers":{"__proto__":["1"]}}' });
    expect(reply).toMatchObject({
      status: 400,
      body: { error: "headers.__proto__: unknown field" },
    });
    expect((await server.ask("GET", path)).body.headers).toEqual({ "Svc-Label": ["kept"] });
  });

  test("are redacted in responses, sent unchanged, and refused if given back redacted", async () => {
    const server = await serverWith({
      "Svc-Redact-Fields": "header[Authorization]",
      "Svc-Forward-Authorization": "Bearer deep",
    });
    const { headers } = (await server.ask("GET", path)).body;
    expect(headers).toEqual({
      "Svc-Redact-Fields": ["header[Authorization]"],
      "Svc-Forward-Authorization": [`REDACTED:${hash("sha256", "Bearer deep", "hex")}`],
    });
    expect((await server.ask("GET", "/v2/topics")).body).toMatchObject([{ headers }]);
    expect(await patch(server, headers)).toMatchObject({
      status: 400,
      body: { error: expect.stringContaining("give the original value") },
    });
    await server.ask("POST", "/v2/publish/orders");
    expect(published(server)[0]?.headers).toEqual([["Authorization", "Bearer deep"]]);
  });

  test("of the other brand are ignored and named if they are unknown", async () => {
    const server = await serverWith();
    const reply = await patch(server, { "Upstash-New": "1", "Upstash-Retries": "2" });
    expect(reply).toMatchObject({
      status: 200,
      headers: { "waypost-ignored": "upstash-new" },
      body: { headers: { "Upstash-Retries": ["2"] } },
    });
    const sent = await server.ask("POST", "/v2/publish/orders");
    expect(sent.headers).not.toHaveProperty("waypost-ignored");
  });

  test("apply to every request unless it has its own, name by name", async () => {
    const server = await serverWith({
      "Svc-Retries": "7",
      "Svc-Timeout": "5s",
      "Svc-Method": "PUT",
      "Svc-Label": "group",
      "Svc-Forward-X-A": ["g1", "g2"],
      "Svc-Forward-X-B": "g",
      "Svc-Callback": "https://c.example",
      "Svc-Callback-Retries": "4",
    });
    await server.ask("POST", "/v2/publish/orders?svc-timeout=6s&svc-method=PATCH", {
      headers: { "upstash-method": "GET", "svc-forward-x-a": "own", "svc-callback": "https://own.example" },
      body: "x",
    });
    const [message, second] = published(server);
    expect(second).toMatchObject({ url: b, retries: 7 });
    expect(message).toMatchObject({
      retries: 7,
      timeout: 6_000,
      method: "GET",
      labels: ["group"],
      callback: { url: "https://own.example", retries: 4 },
    });
    expect(message?.headers).toEqual([
      ["X-A", "own"],
      ["X-B", "g"],
    ]);
  });

  test("of a callback are not sent to another URL that the request gives", async () => {
    const server = await serverWith({
      "Svc-Callback": "https://c.example",
      "Svc-Callback-Forward-Authorization": "Bearer ours",
      "Svc-Callback-Retries": "4",
      "Svc-Failure-Callback": "https://f.example",
      "Upstash-Failure-Callback-Forward-X": "ours",
      "Svc-Callback-Callback": "https://cc.example",
      "Svc-Callback-Callback-Forward-Y": "ours",
    });
    const publish = async (headers: Record<string, string>) => {
      await server.ask("POST", "/v2/publish/orders", { headers, body: "x" });
      return published(server).at(-1);
    };
    const inner = { url: "https://cc.example", headers: [["Y", "ours"]] };
    const failure = { url: "https://f.example", headers: [["X", "ours"]] };
    expect(
      await publish({ "svc-callback": "https://own.example", "svc-callback-forward-z": "own" }),
    ).toMatchObject({
      callback: { url: "https://own.example", retries: 4, headers: [["Z", "own"]], callback: inner },
      failureCallback: failure,
    });
    const same = {
      url: "https://c.example",
      retries: 4,
      headers: [["Authorization", "Bearer ours"]],
      callback: inner,
    };
    expect(await publish({ "svc-callback": "https://c.example" })).toMatchObject({
      callback: same,
      failureCallback: failure,
    });
    expect(
      await publish({
        "svc-failure-callback": "https://own.example",
        "svc-callback-callback": "https://own.example",
      }),
    ).toMatchObject({
      callback: { ...same, callback: { url: "https://own.example", headers: [] } },
      failureCallback: { url: "https://own.example", headers: [] },
    });
  });

  test("with not-before yield to a delay in the request", async () => {
    const server = await serverWith({ "Svc-Not-Before": String(testTime / 1000 + 60) });
    const [{ messageId: early }] = (
      await server.ask("POST", "/v2/publish/orders", { headers: { "svc-delay": "10s" } })
    ).body;
    const [{ messageId: late }] = (await server.ask("POST", "/v2/publish/orders")).body;
    expect((await server.ask("GET", `/v2/messages/${early}`)).body.notBefore).toBe(testTime + 10_000);
    expect((await server.ask("GET", `/v2/messages/${late}`)).body.notBefore).toBe(testTime + 60_000);
  });

  test("with header-forward deliver the sender's headers, except the token", async () => {
    const server = await serverWith({ "Svc-Header-Forward": ["true"] });
    await server.ask("POST", "/v2/publish/orders", { headers: { "x-event": "push" } });
    for (const message of published(server)) {
      expect(message.headers).toContainEqual(["X-Event", "push"]);
      expect(message.headers.map(([name]) => name)).not.toContain("Authorization");
    }
    expect(published(server)).toHaveLength(2);
  });
});
