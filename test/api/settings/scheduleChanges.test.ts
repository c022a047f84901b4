import { hash } from "node:crypto";
import { describe, expect, test } from "vitest";
import type { Schedule } from "../../../src/engine/core/model/schedule.ts";
import type { TestServer } from "../testServer.ts";
import { createTestServer, otherToken, testTime } from "../testServer.ts";
import { come, create, makeGroup, minute, read } from "../routes/schedules/scheduleRequests.ts";

const told = "https://told.example/";
const longName = "Svc-Failure-Callback-Callback-Timeout";

/** A string for each setting that a schedule keeps, also of its callbacks. */
const everything = {
  "Svc-Schedule-Id": "tick",
  "Svc-Cron": "CRON_TZ=Europe/Berlin 0 9 * * *",
  "Svc-Queue-Name": "reports",
  "Svc-Method": "PUT",
  "Svc-Delay": "1h30m",
  "Svc-Retries": "7",
  "Svc-Retry-Delay": "1000 * retried",
  "Svc-Timeout": "42s",
  "Svc-Label": "eu, billing",
  "Svc-Flow-Control-Key": "k",
  "Svc-Flow-Control-Value": "rate=9, period=1m",
  "Svc-Redact-Fields": "body, header[Authorization]",
  "Svc-Keep-Response": "true",
  "Svc-Hide-Headers": "true",
  "Svc-Forward-Authorization": "Bearer s",
  "Svc-Forward-X-One": "1",
  "Svc-Forward-Content-Type": "text/plain",
  "Svc-Callback": told,
  "Svc-Callback-Method": "PATCH",
  "Svc-Callback-Delay": "3m",
  "Svc-Callback-Retries": "0",
  "Svc-Callback-Timeout": "9s",
  "Svc-Callback-Label": "told",
  "Svc-Callback-Flow-Control-Key": "told",
  "Svc-Callback-Flow-Control-Value": "parallelism=3",
  "Svc-Callback-Forward-Authorization": "Bearer t",
  "Svc-Failure-Callback": told,
  "Svc-Failure-Callback-Retry-Delay": "7",
  "Svc-Failure-Callback-Callback": told,
  [longName]: "11s",
};

const destination = "https://e.example/x?y=1";
const find = ({ memory }: TestServer): Schedule | undefined => memory.tables.schedules.get("acc_1\ntick");
const patch = ({ ask }: TestServer, body: unknown, more: { token?: string } = {}) =>
  ask("PATCH", "/v2/schedules/tick", { body: JSON.stringify(body), ...more });

async function withEverything(): Promise<TestServer> {
  const server = await createTestServer();
  expect(await create(server, destination, { headers: everything, body: "secret" })).toBe("tick");
  return server;
}

describe("a schedule", () => {
  test("shows all of its settings, redacted, in a form that other schedules take", async () => {
    const server = await withEverything();
    const { settings } = await read(server, "tick");
    const { "Svc-Schedule-Id": _, ...kept } = everything;
    const hide = (text: string): string => `REDACTED:${hash("sha256", text, "hex")}`;
    expect(settings).toEqual({
      ...kept,
      "Svc-Forward-Authorization": hide("Bearer s"),
      "Svc-Callback-Forward-Authorization": hide("Bearer t"),
    });
    const given = { ...settings, "Svc-Schedule-Id": "tock" };
    for (const name of ["Svc-Forward-Authorization", "Svc-Callback-Forward-Authorization"] as const)
      given[name] = everything[name];
    await create(server, destination, { headers: given });
    const copy = server.memory.tables.schedules.get("acc_1\ntock");
    expect(copy?.messageInput).toEqual({ ...find(server)?.messageInput, scheduleId: "tock" });
    expect((await server.ask("GET", "/v2/schedules")).body[0]).not.toHaveProperty("settings");
  });

  test("of which only the expression changes keeps everything else", async () => {
    const server = await withEverything();
    await come(server, Date.UTC(2027, 1, 1));
    await server.ask("POST", "/v2/schedules/tick/pause");
    const before = find(server);
    expect(before).toMatchObject({ lastAt: server.clock.now, lastMessages: [expect.any(String)] });
    const shown = await read(server, "tick");
    const reply = await patch(server, { settings: { "Svc-Cron": "0 5 * * *" } });
    expect(find(server)).toEqual({ ...before, cron: "0 5 * * *" });
    expect(reply).toMatchObject({
      status: 200,
      body: { ...shown, cron: "0 5 * * *", settings: { ...shown.settings, "Svc-Cron": "0 5 * * *" } },
    });
  });

  test("fires at the next time of its new expression, and at no time that has passed", async () => {
    const server = await createTestServer();
    await create(server, destination, { headers: { "svc-schedule-id": "tick" } });
    await patch(server, { settings: { "Upstash-Cron": "*/2 * * * *" } });
    expect(find(server)?.dueAt).toBe(testTime + 2 * minute);
    await patch(server, { settings: { "Svc-Retries": "1" } });
    expect(find(server)?.dueAt).toBe(testTime + 2 * minute);
    await come(server, testTime + 2 * minute);
    expect(server.delivery().message).toMatchObject({ scheduleId: "tick", retries: 1 });
  });

  test("gets each setting that is given, and loses each that is null", async () => {
    const server = await withEverything();
    const kept = new Set(["Svc-Schedule-Id", "Svc-Cron", "Svc-Redact-Fields"]);
    const removed = Object.keys(everything).filter((name) => !kept.has(name) && !/callback-/i.test(name));
    const gone = await patch(server, { settings: Object.fromEntries(removed.map((name) => [name, null])) });
    expect(gone).toMatchObject({ status: 200 });
    expect(gone.body.settings).toEqual({
      "Svc-Cron": everything["Svc-Cron"],
      "Svc-Redact-Fields": everything["Svc-Redact-Fields"],
    });
    expect(find(server)?.messageInput).toMatchObject({
      method: "POST",
      headers: [],
      retries: null,
      retryDelay: null,
      timeout: null,
      flowControl: null,
      callback: null,
      failureCallback: null,
      delay: null,
      labels: [],
      queue: null,
      keepResponse: false,
      hideHeaders: false,
    });
    const { "Svc-Schedule-Id": _, "Svc-Redact-Fields": hidden, ...settings } = everything;
    expect((await patch(server, { settings, body: "secret" })).status).toBe(200);
    const again = await withEverything();
    expect(find(server)).toEqual({ ...find(again), createdAt: find(server)?.createdAt });
    expect(hidden).toBeDefined();
  });

  test("gets a callback as a whole, and hides what else is redacted", async () => {
    const server = await withEverything();
    const url = "https://told.example/";
    await patch(server, { settings: { "Svc-Callback": url, "Svc-Redact-Fields": "header[X-One]" } });
    const { callback, redaction } = find(server)?.messageInput ?? {};
    expect(callback).toMatchObject({ url, method: "POST", headers: [], retries: null, flowControl: null });
    expect(redaction).toEqual({ body: true, headers: ["Authorization", "X-One"] });
  });

  test("that hides headers up to the limit can be read, and stays as it is beyond the limit", async () => {
    const server = await withEverything();
    const hide = (letter: string) => {
      const names = Array.from({ length: 2_500 }, (_, n) => `header[${letter}${String(n).padStart(9, "0")}]`);
      return patch(server, { settings: { "Svc-Redact-Fields": names.join(",") } });
    };
    for (const letter of ["A", "B"]) expect(await hide(letter)).toMatchObject({ status: 200 });
    const shown = await read(server, "tick");
    expect(shown.settings["Svc-Forward-Authorization"]).toMatch(/^REDACTED:/);
    expect(shown.settings["Svc-Redact-Fields"]).toHaveLength(
      "body, header[Authorization]".length + 5_000 * ", header[A000000000]".length,
    );
    const before = find(server);
    expect(await hide("C")).toMatchObject({
      status: 412,
      body: { error: expect.stringMatching(/^redact-fields: /) },
    });
    expect(find(server)).toEqual(before);
    expect(await read(server, "tick")).toEqual(shown);
  });

  test("goes elsewhere with everything that is redacted replaced", async () => {
    const server = await withEverything();
    const change = { destination: "https://x.example/", body: "open" };
    expect(await patch(server, change)).toMatchObject({ status: 403 });
    const settings = { "Svc-Forward-Authorization": "Bearer x" };
    expect(await patch(server, { ...change, settings })).toMatchObject({ status: 200 });
    expect(find(server)?.messageInput).toMatchObject({
      url: "https://x.example/",
      headers: expect.arrayContaining([["Authorization", "Bearer x"]]),
    });
  });

  test("gets another destination and another body", async () => {
    const server = await createTestServer();
    await makeGroup(server, ["https://one.example/", "https://two.example/"]);
    await create(server, destination, { headers: { "svc-schedule-id": "tick", "svc-timeout": "5s" } });
    await patch(server, { destination: "shops?a=b", body: "new" });
    expect(find(server)?.messageInput).toMatchObject({
      url: "",
      group: "shops",
      query: "a=b",
      timeout: 5_000,
    });
    expect(await read(server, "tick")).toMatchObject({ destination: "shops?a=b", body: "new" });
    await patch(server, { bodyBase64: "/wA=" });
    await patch(server, { destination: "https://three.example/" });
    await come(server, testTime + 5 * minute);
    const { message } = server.delivery();
    expect(message).toMatchObject({ url: "https://three.example/", group: null, timeout: 5_000 });
    expect(find(server)?.messageInput).not.toHaveProperty("query");
    expect(Buffer.from(message.body)).toEqual(Buffer.from([0xff, 0]));
  });
});

describe("a change of a schedule is refused", () => {
  test.each<[what: string, body: unknown, status: number, error: RegExp]>([
    [
      "with another destination, which redacted parts would reach",
      { destination: "https://x.example" },
      403,
      /^body: redacted/,
    ],
    ["with another callback", { settings: { "Svc-Callback": "https://x.example" } }, 403, /^body: redacted/],
    [
      "with a redacted value",
      { settings: { "Svc-Forward-A": `REDACTED:${"0".repeat(64)}` } },
      400,
      /^settings\.Svc-Forward-A: a redacted value/,
    ],
    [
      "that shows redacted fields",
      { settings: { "Svc-Redact-Fields": null } },
      400,
      /^settings\.Svc-Redact-Fields: cannot be removed; create the schedule again/,
    ],
    [
      "without an expression",
      { settings: { "Svc-Cron": null } },
      400,
      /^settings\.Svc-Cron: cannot be removed/,
    ],
    ["with a bad expression", { settings: { "Svc-Cron": "no" } }, 400, /^Svc-Cron: "no" has 1 field/],
    [
      "with another id",
      { settings: { "Svc-Schedule-Id": "a" } },
      400,
      /^settings\.Svc-Schedule-Id: cannot be changed/,
    ],
    [
      "with deduplication",
      { settings: { "Svc-Deduplication-Id": "a" } },
      400,
      /^settings\.Svc-Deduplication-Id: cannot be changed/,
    ],
    [
      "with a start time",
      { settings: { "Svc-Not-Before": "1900000000" } },
      400,
      /^not-before: not valid for a schedule/,
    ],
    ["with an unknown setting", { settings: { "Svc-Retry": "1" } }, 400, /^Svc-Retry: unknown setting/],
    [
      "without an unknown setting",
      { settings: { "Svc-Retry": null } },
      400,
      /^settings\.Svc-Retry: cannot be removed/,
    ],
    [
      "with a header that is not a setting",
      { settings: { Retries: "1" } },
      400,
      /^settings\.Retries: not a setting/,
    ],
    [
      "without one setting of a callback",
      { settings: { "Svc-Callback-Timeout": null } },
      400,
      /^settings\.Svc-Callback-Timeout: cannot be removed; give the URL of the callback with all/,
    ],
    [
      "with a setting of a callback alone",
      { settings: { "Svc-Callback-Timeout": "1s" } },
      400,
      /^Svc-Callback-Timeout: requires Svc-Callback$/,
    ],
    [
      "with the callback of a callback alone",
      { settings: { "Svc-Callback-Callback": "https://x.example" } },
      400,
      /^Svc-Callback-Callback: requires Svc-Callback$/,
    ],
    [
      "with a key without limits",
      { settings: { "Svc-Flow-Control-Key": "a", "Svc-Flow-Control-Value": null } },
      400,
      /^flow-control-key: requires/,
    ],
    ["with too many retries", { settings: { "Svc-Retries": "999999" } }, 412, /retries/],
    ["with two bodies", { body: "a", bodyBase64: "YQ==" }, 400, /^bodyBase64: not valid together with body/],
    ["with an unknown group", { destination: "none" }, 404, /none/],
    [
      "with a setting in its destination",
      { destination: "shops?svc-retries=1" },
      400,
      /^destination: has the setting/,
    ],
    ["with an unknown field", { cron: "* * * * *" }, 400, /^cron: unknown field/],
  ])("%s", async (...row) => {
    const [, body, status, error] = row;
    const server = await withEverything();
    await makeGroup(server, ["https://one.example/"]);
    const before = find(server);
    const reply = await patch(server, body);
    expect(reply).toMatchObject({ status, body: { error: expect.stringMatching(error) } });
    expect(find(server)).toEqual(before);
  });

  test("if the account does not have the schedule", async () => {
    const server = await withEverything();
    const body = { settings: { "Svc-Retries": "1" } };
    expect(await patch(server, body, { token: otherToken })).toMatchObject({ status: 404 });
    const none = await server.ask("PATCH", "/v2/schedules/none", { body: JSON.stringify(body) });
    expect(none).toMatchObject({ status: 404 });
  });

  test("without the verbs manage and read", async () => {
    const server = await withEverything();
    for (const verbs of [
      ["publish", "read"],
      ["publish", "manage"],
    ]) {
      const { token } = (await server.ask("POST", "/v2/tokens", { body: JSON.stringify({ verbs }) })).body;
      const reply = await patch(server, { settings: { "Svc-Retries": "1" } }, { token });
      expect(reply).toMatchObject({ status: 403, body: { error: expect.stringContaining("requires") } });
    }
    const { token } = (
      await server.ask("POST", "/v2/tokens", { body: JSON.stringify({ verbs: ["read", "manage"] }) })
    ).body;
    expect(await patch(server, { settings: { "Svc-Retries": "1" } }, { token })).toMatchObject({
      status: 200,
    });
  });
});
