import { readFileSync, statSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { describe, expect, test } from "vitest";
import { settingRows } from "../../src/api/settings/table.ts";
import { developmentAccounts } from "../../src/settings/credentials.ts";
import { settingForms } from "../../src/client/applySettings.ts";
import type { Ended } from "../server/waypost.ts";
import { developmentToken, startWaypost, temporaryFolder } from "../server/waypost.ts";
import { commandsFor, startCommand } from "./startCommand.ts";

type Json = Record<string, unknown>;

/** A server, a folder for files, and functions that apply a file and call the API. */
async function start(token = developmentToken) {
  const server = await startWaypost(["dev", "--port", "0"]);
  return { ...server, ...useServer(server.url, token) };
}

function useServer(url: string, token: string) {
  const folder = temporaryFolder();
  const environment = { WAYPOST_TOKEN: token, AUTH: "Bearer abc", GITHUB_SECRET: "it is a secret" };
  const run = commandsFor(url, environment);
  const apply = (text: string, ...flags: readonly string[]): Promise<Ended> => {
    writeFileSync(join(folder, "waypost.yaml"), text);
    return run("apply", join(folder, "waypost.yaml"), ...flags);
  };
  const done = async (text: string, ...flags: readonly string[]): Promise<string> => {
    const ended = await apply(text, ...flags);
    expect(ended).toMatchObject({ code: 0, err: "" });
    return ended.out;
  };
  const ask = async (path: string, method = "GET", body?: unknown): Promise<Json> => {
    const response = await fetch(`${url}/v2/${path}`, {
      method,
      headers: { authorization: `Bearer ${token}`, "content-type": "application/json" },
      ...(body === undefined ? {} : { body: JSON.stringify(body) }),
    });
    expect(response.status, await response.clone().text()).toBeLessThan(300);
    return (await response.json()) as Json;
  };
  return { folder, apply, done, ask };
}

const everything = `
pulled: ["https://Worker.internal/", https://press.internal, https://worker.internal]
queues:
  orders: {parallelism: 2}
flowControl:
  checkout: {parallelism: 5, rate: 50, period: 60s, paused: true}
urlGroups:
  signups:
    endpoints:
      - {name: mail, url: "https://example.com/mail"}
      - url: https://example.com/crm
    settings: {Svc-Retries: 1}
schedules:
  daily:
    cron: CRON_TZ=Europe/Berlin 0 9 * * 1-5
    destination: https://example.com/report
    body: '{"kind":"daily"}'
    settings:
      Svc-Timeout: 90
      Svc-Delay: 1.5h
      Svc-Label: billing,eu
      Svc-Forward-Authorization: {env: AUTH}
      Svc-Forward-Content-Type: application/json
      Svc-Forward-X-Two: [a, b]
      Svc-Flow-Control-Key: reports
      Svc-Flow-Control-Value: rate=5,parallelism=3, period=60s
      Upstash-Callback: https://example.com/back
      Upstash-Callback-Retries: 2
      Svc-Redact-Fields: header[authorization], body
      Svc-Method: post
      Svc-Keep-Response: false
      Svc-Queue-Name: orders
    paused: true
sources:
  github:
    destination: signups
    urlFile: github-url
    settings: {Svc-Retries: 5}
    verification: {scheme: github, secret: {env: GITHUB_SECRET}}
tokens:
  checkout:
    verbs: [read, publish]
    destinations: ["https://example.com/*"]
    expires: 30d
    file: checkout-token
`;

describe("waypost apply", () => {
  test("makes what the file has, and a repeat changes nothing", async () => {
    const { url, apply, done, ask, folder } = await start();
    const shown = await done(everything, "--dry-run");
    expect(shown).toContain("create schedules.daily\n  cron: CRON_TZ=Europe/Berlin 0 9 * * 1-5\n");
    expect(shown).toContain("  Svc-Forward-Authorization: (not shown)\n");
    expect(shown).toMatch(/^11 changes would be made; 0 unchanged$/m);
    expect(await ask("queues")).toEqual([]);
    expect(await ask("schedules")).toEqual([]);
    expect(await ask("tokens")).toEqual({ tokens: [] });

    expect(await done(everything)).toMatch(/^11 changes made; 0 unchanged$/m);
    const origins = [{ origin: "https://press.internal" }, { origin: "https://worker.internal" }];
    expect(await ask("pulled")).toEqual({ origins });
    expect(await ask("queues/orders")).toMatchObject({ parallelism: 2, paused: false });
    expect(await ask("flowControl/checkout")).toMatchObject({
      ...{ parallelismMax: 5, rateMax: 50, ratePeriod: 60, isPaused: true },
      ...{ isPinnedParallelism: true, isPinnedRate: true },
    });
    expect(await ask("topics/signups")).toMatchObject({
      endpoints: [{ name: "mail", url: "https://example.com/mail" }, { url: "https://example.com/crm" }],
      headers: { "Svc-Retries": ["1"] },
    });
    expect(await ask("schedules/daily")).toMatchObject({
      ...{ isPaused: true, destination: "https://example.com/report", delay: 5400 },
      settings: { "Svc-Timeout": "1m30s", "Svc-Callback-Retries": "2", "Svc-Forward-X-Two": ["a", "b"] },
    });
    expect(await ask("sources")).toMatchObject({
      sources: [{ name: "github", destination: "signups", verification: { scheme: "github", secrets: 1 } }],
    });
    for (const file of ["github-url", "checkout-token"])
      expect(statSync(join(folder, file)).mode & 0o777).toBe(0o600);
    const token = readFileSync(join(folder, "checkout-token"), "utf8").trim();
    expect(await useServer(url, token).ask("queues")).toMatchObject([{ name: "orders" }]);
    const other = useServer(url, developmentAccounts[1]?.token ?? "");
    expect(await other.done("queues: {orders: {parallelism: 9}}")).toContain("create queues.orders");
    expect(await ask("queues/orders")).toMatchObject({ parallelism: 2 });

    const otherScheme = await apply("pulled: [http://worker.internal]", "--dry-run");
    expect(otherScheme).toMatchObject({ code: 1, err: expect.stringContaining("use that scheme") });

    expect(await done(everything, "--dry-run")).toBe("0 changes would be made; 8 unchanged\n");
    expect(await done(everything)).toBe("0 changes made; 8 unchanged\n");
    expect(JSON.parse(await done(everything, "--json"))).toEqual({ changes: [], unchanged: 8 });
  });

  test("changes what the file names, and nothing else", async () => {
    const { done, ask } = await start();
    await done(everything);
    await ask("queues", "POST", { queueName: "other", parallelism: 7 });
    await ask("schedules/daily", "PATCH", { settings: { "Svc-Retries": "9" } });
    const out = await done(`
queues:
  orders: {paused: true}
flowControl:
  checkout: {rate: null, paused: false}
urlGroups:
  signups:
    endpoints: [{name: mail, url: "https://example.com/mail2"}]
    settings: {Svc-Timeout: 5s, Svc-Retries: null}
schedules:
  daily:
    cron: CRON_TZ=Europe/Berlin 0 10 * * 1-5
    destination: https://example.com/report
    settings:
      Svc-Timeout: null
      Svc-Callback: https://example.com/back
sources:
  github: {destination: signups, urlFile: github-url, paused: true, settings: {Svc-Timeout: 9s}}
`);
    expect(out).toContain(
      "change schedules.daily\n" +
        "  cron: CRON_TZ=Europe/Berlin 0 9 * * 1-5 -> CRON_TZ=Europe/Berlin 0 10 * * 1-5\n" +
        "  Svc-Timeout: 1m30s -> (none)\n  Svc-Callback-Retries: 2 -> (none)\n",
    );
    expect(await ask("queues/orders")).toMatchObject({ parallelism: 2, paused: true });
    expect(await ask("queues/other")).toMatchObject({ parallelism: 7 });
    expect(await ask("flowControl/checkout")).toMatchObject({
      ...{ isPinnedParallelism: true, isPinnedRate: false, isPaused: false, parallelismMax: 5 },
    });
    const { endpoints, headers } = await ask("topics/signups");
    expect(endpoints).toEqual([{ name: "mail", url: "https://example.com/mail2" }]);
    expect(headers).toEqual({ "Svc-Timeout": ["5s"] });
    const { settings, isPaused } = await ask("schedules/daily");
    expect(isPaused).toBe(true);
    expect(settings).toMatchObject({
      ...{ "Svc-Cron": "CRON_TZ=Europe/Berlin 0 10 * * 1-5", "Svc-Retries": "9" },
      ...{ "Svc-Callback": "https://example.com/back", "Svc-Label": "billing, eu" },
    });
    expect(settings).not.toHaveProperty("Svc-Timeout");
    expect(settings).not.toHaveProperty("Svc-Callback-Retries");
    expect(await ask("sources")).toMatchObject({
      sources: [{ paused: true, settings: { "Svc-Retries": "5", "Svc-Timeout": "9s" } }],
    });
  });

  test("reads JSON, the input and bodies from files", async () => {
    const { url, done, ask, folder } = await start();
    const body = Buffer.from([0, 255, 1]);
    writeFileSync(join(folder, "body.bin"), body);
    const file = JSON.stringify({
      schedules: {
        nightly: { cron: "0 1 * * *", destination: "https://example.com/", body: { file: "body.bin" } },
      },
    });
    await done(file);
    expect(await ask("schedules/nightly")).toMatchObject({ bodyBase64: body.toString("base64") });
    expect(await done(file)).toBe("0 changes made; 1 unchanged\n");
    writeFileSync(join(folder, "body.bin"), "text now");
    expect(await done(file)).toContain("  body: (not shown) -> (not shown)\n");
    expect(await ask("schedules/nightly")).toMatchObject({ body: "text now" });
    const environment = { WAYPOST_URL: url, WAYPOST_TOKEN: developmentToken };
    const ended = await startCommand(["apply", "-"], environment, "queues: {a: {}, b: }").ended;
    expect(ended).toMatchObject({ code: 0, out: expect.stringContaining("2 changes made") });
  });
});

describe("a wrong file", () => {
  test("is refused as a whole, with each line and a suggestion", async () => {
    const { apply, ask } = await start();
    const ended = await apply(`queues:
  orders: {parallelism: 2}
  "a b": {}
queue: {}
schedules:
  daily:
    cron: "61 * * * *"
    destinatoin: https://example.com/
    settings:
      Svc-Retrys: 1
      X-Other: 1
  hourly:
    cron: "@hourly"
    destination: ftp://example.com
    settings: {Svc-Callback-Retries: 1}
    paused: maybe
sources:
  hook: {destination: "https://example.com", urlFile: u, verification: {scheme: github, secret: {env: NONE}}}
tokens:
  t: {verbs: [write], file: t}
`);
    expect(ended).toMatchObject({ code: 2, out: "" });
    const lines = ended.err
      .replaceAll(/waypost: \S+waypost\.yaml: /g, "")
      .trim()
      .split("\n");
    expect(lines).toEqual([
      "line 3: queues.a b: is not a valid name; use letters or digits, ., _ and -",
      "line 4: queue: unknown key; did you mean queues?",
      expect.stringMatching(/^line 7: schedules\.daily\.cron: .*61/),
      "line 8: schedules.daily.destinatoin: unknown key; did you mean destination?",
      "line 10: schedules.daily.settings.Svc-Retrys: unknown setting; did you mean Svc-Retries?",
      "line 6: schedules.daily: requires destination; add it",
      expect.stringMatching(
        /^line 14: schedules.hourly.destination: is not a URL with http:\/\/ or https:\/\/; /,
      ),
      expect.stringMatching(/^line 15: schedules.hourly.settings: callback-retries requires Svc-Callback; /),
      "line 16: schedules.hourly.paused: is neither true nor false",
      "line 18: sources.hook.verification.secret.env: the variable NONE is not set; set it and apply again",
      "line 20: tokens.t.verbs.0: must be one of publish, read, manage, receive",
      "has 11 problems; nothing was changed",
    ]);
    expect(await ask("queues")).toEqual([]);
  });

  test.each([
    ["queues:\n  a: {}\n  a: {}", /line 3: queues\.a: is given twice; remove one of them/],
    [`{"queues": {}, "tokens": {},\n"queues": {}}`, /line 2: queues: is given twice/],
    [
      `x:\n${Array.from({ length: 100_000 }, (_, at) => `  a${at}: 1\n`).join("")}  a7: 1`,
      /line 100002: x\.a7: is given twice/,
    ],
    ["a: &x {}\nqueues: *x", /line 2: queues: aliases/],
    ["queues: {}\n---\nqueues: {}", /one YAML document/],
    ["queues:\n\t- a", /line 2: /],
    ["queues: !!js/function 'x'", /line 1: /],
    ["__proto__: {}", /line 1: __proto__: unknown key/],
    [`queues: ${"[".repeat(50)}${"]".repeat(50)}`, /nested more than/],
    [`queues: ${"[".repeat(100_000)}`, /waypost\.yaml: /],
    ["queues: [a]", /line 1: queues: must have keys/],
    [
      "pulled:\n  - https://worker.internal/path",
      /line 2: pulled\.0: "https:.*path" is not an origin; use a sch/,
    ],
    ["pulled: [https://a.internal, http://a.internal]", /line 1: pulled: has both schemes of a\.internal/],
    ["pulled: {a: 1}", /line 1: pulled: is not a list/],
    ["'\u001b[2J': 1", /u\{1b\}.*unknown key/],
    ["[1]", /must have keys/],
  ])("%# is refused", async (text, problem) => {
    const { apply } = useServer("http://127.0.0.1:9", developmentToken);
    const ended = await apply(text);
    expect(ended).toMatchObject({ code: 2, out: "", err: expect.stringMatching(problem) });
    expect(ended.err).not.toContain("\u001b");
  });
});

describe("a change that fails", () => {
  test("is reported with what was done before, and can be repeated", async () => {
    const { apply, done, ask } = await start();
    const file = (retries: number): string => `
queues: {orders: {parallelism: 2}}
schedules:
  a: {cron: "0 1 * * *", destination: "https://example.com/a"}
  b: {cron: "0 1 * * *", destination: "https://example.com/b", settings: {Svc-Retries: ${retries}}}
  c: {cron: "0 1 * * *", destination: "https://example.com/c"}
`;
    const ended = await apply(file(5000));
    expect(ended.code).toBe(1);
    expect(ended.err).toMatch(/^waypost: create schedules\.b: .*retries.*; 2 of 4 changes were made /i);
    expect(ended.err).toContain(
      "(create queues.orders, create schedules.a); correct the cause and apply again",
    );
    expect(((await ask("schedules")) as unknown as Json[]).map((one) => one["scheduleId"])).toEqual(["a"]);
    const json = await apply(file(5000), "--json");
    expect(JSON.parse(json.out)).toMatchObject({
      changes: [
        { resource: "schedules.b", action: "create", done: false },
        { resource: "schedules.c", done: false },
      ],
      unchanged: 2,
    });
    expect(await done(file(5))).toContain("2 changes made; 2 unchanged");
  });

  test("needs the rights of each route", async () => {
    const { url, ask } = await start();
    const makeToken = async (verbs: readonly string[]): Promise<string> =>
      String((await ask("tokens", "POST", { verbs, destinations: [] }))["token"]);
    const reader = useServer(url, await makeToken(["read"]));
    expect(await reader.done("queues: {a: {}}", "--dry-run")).toContain("create queues.a");
    expect(await reader.apply("queues: {a: {}}")).toMatchObject({
      code: 4,
      err: expect.stringContaining("token: requires 'manage'"),
    });
    const manager = useServer(url, await makeToken(["read", "manage"]));
    expect(
      await manager.apply(`
queues: {a: {}}
schedules: {s: {cron: "@daily", destination: "https://example.com"}}
`),
    ).toMatchObject({ code: 4, err: expect.stringContaining("1 of 2 changes were made (create queues.a)") });
    const publisher = useServer(url, await makeToken(["publish"]));
    expect(await publisher.apply("queues: {a: {}}")).toMatchObject({ code: 4 });
  });
});

describe("tokens and sources", () => {
  test("are not replaced, and never lose what is shown once", async () => {
    const { apply, done, ask, folder } = await start();
    const file = (verbs: string): string => `tokens: {shop: {verbs: [${verbs}], file: shop-token}}`;
    writeFileSync(join(folder, "shop-token"), "an old one");
    expect(await apply(file("publish"))).toMatchObject({
      code: 2,
      err: expect.stringMatching(/tokens\.shop: does not exist on the server, but .*shop-token does/),
    });
    expect(await apply("tokens: {shop: {verbs: [publish], file: none/token}}")).toMatchObject({
      code: 1,
      err: expect.stringContaining("cannot be written"),
    });
    expect(await ask("tokens")).toEqual({ tokens: [] });
    await done(file("publish").replace("shop-token", "new-token"));
    expect(await apply(file("publish, read"))).toMatchObject({
      code: 1,
      err: expect.stringMatching(/tokens\.shop: exists with other verbs, .*revoke tok_/),
    });
    expect(await done(file("publish"))).toBe("0 changes made; 1 unchanged\n");
  });

  test("the secrets of a source are sent again only on request, and never printed", async () => {
    const { apply, done, ask } = await start();
    const file = (secret: string): string =>
      "sources: {hook: {destination: 'https://example.com', urlFile: u, " +
      `verification: {scheme: github, secret: ${secret}}}}`;
    expect(await done(file("first-secret"))).not.toContain("first-secret");
    expect(await done(file("second-secret"))).toBe("0 changes made; 1 unchanged\n");
    const out = await done(file("second-secret"), "--secrets");
    expect(out).toContain("  verification: (not shown) -> (not shown)\n");
    expect(await done(file("[second-secret, third]"))).toContain(
      "change sources.hook\n  verification.secrets: 1 -> 2\n",
    );
    expect(await ask("sources")).toMatchObject({ sources: [{ verification: { secrets: 2 } }] });
    await ask("sources", "POST", { name: "hook", destination: "https://example.com" });
    expect(await apply(file("x"))).toMatchObject({
      code: 1,
      err: expect.stringContaining("sources.hook: 2 have this name"),
    });
  });
});

test("the command knows every setting of a message", () => {
  expect(Object.keys(settingForms).toSorted()).toEqual(Object.keys(settingRows).toSorted());
});
