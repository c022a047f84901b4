import { Client, Receiver } from "@upstash/qstash";
import { serve } from "@upstash/workflow";
import { expect, test } from "vitest";
import { limits } from "../../src/engine/core/values/limits.ts";
import { developmentAccounts } from "../../src/settings/credentials.ts";
import { startCommand, commandsFor } from "../client/startCommand.ts";
import { ask, client, connect, origin, publish, startApp, startPulled, untilState } from "./connecting.ts";
import { developmentToken, startDestination, startWaypost, temporaryFolder } from "./waypost.ts";

// Receivers that no server can reach: real servers, and real processes of `waypost connect`.

const keys = developmentAccounts[0]?.signingKeys ?? { current: "", next: "" };
const receiver = new Receiver({ currentSigningKey: keys.current, nextSigningKey: keys.next });

/** Starts a server that gives these answers to pulls, and then the last one again. */
async function startAnswering(answers: readonly [status: number, body: object][]) {
  let asked = 0;
  const url = await startApp(async () => {
    const [status, body] = answers[Math.min(asked++, answers.length - 1)] ?? [500, {}];
    // A server that has nothing waits before it answers.
    if (asked > answers.length) await new Promise((resolve) => setTimeout(resolve, 1_000));
    return Response.json(body, { status });
  });
  return { url, asked: () => asked };
}

const failure: [number, object] = [500, { error: "the server has failed", code: "internal" }];

test("a connector is connected after its first pull, and outlives errors of the server", async () => {
  const server = await startAnswering([
    failure,
    [503, { error: "stopping; retry later", code: "stopping" }],
    [200, { attempts: [] }],
    failure,
    [200, { attempts: [] }],
  ]);
  const args = ["connect", origin, "--to", "http://127.0.0.1:9"];
  const connector = startCommand(args, { WAYPOST_URL: server.url, ...client });
  await expect.poll(server.asked).toBeGreaterThan(1);
  expect(connector.out()).toBe("");
  await expect.poll(server.asked).toBeGreaterThan(4);
  expect(connector.out().match(/connected/g)).toHaveLength(1);
  expect(connector.err()).toBe(
    "waypost: the server has failed\nwaypost: stopping; retry later\nwaypost: the server has failed\n",
  );
  connector.kill("SIGINT");
  expect((await connector.ended).code).toBe(0);
});

test.each([
  [401, 4, "the token was not accepted"],
  [403, 4, "token: requires 'receive'"],
  [404, 3, "https://app.internal is not pulled"],
])("a connector that gets status %i ends with exit code %i", async (status, code, said) => {
  const error = status === 403 ? said : `origin: ${said}; declare it`;
  const server = await startAnswering([[status, { error, code: "forbidden" }]]);
  const args = ["connect", origin, "--to", "http://127.0.0.1:9"];
  const ended = await startCommand(args, { WAYPOST_URL: server.url, ...client }).ended;
  expect(ended).toMatchObject({ code, out: "", err: expect.stringContaining(said) });
});

test("an unmodified workflow runs behind a connector", async () => {
  const server = await startPulled();
  const { handler } = serve<string>(
    async (context) => {
      const greeting = await context.run("greet", () => `hello ${context.requestPayload}`);
      await context.sleep("nap", 1);
      const [upper, length] = await Promise.all([
        context.run("upper", () => greeting.toUpperCase()),
        context.run("length", () => greeting.length),
      ]);
      return { upper, length };
    },
    { qstashClient: new Client({ baseUrl: server.url, token: developmentToken }), receiver, env: {} },
  );
  const app = await startApp(handler);
  const connector = await connect(server.url, app);
  const { workflowRunId } = await ask(server.url, `/v2/trigger/${origin}/flow`, {
    method: "POST",
    body: "ann",
  });
  const run = async () =>
    (
      (await ask(server.url, `/v2/workflows/logs?workflowRunId=${String(workflowRunId)}`))["runs"] as
        | Record<string, unknown>[]
        | undefined
    )?.[0];
  await expect.poll(async () => (await run())?.["workflowState"]).toBe("RUN_SUCCESS");
  expect(JSON.parse(String((await run())?.["workflowRunResponse"]))).toEqual({
    upper: "HELLO ANN",
    length: 9,
  });
  expect((await ask(server.url, "/v2/messages"))["messages"]).toEqual([]);
  connector.kill("SIGINT");
  const { code, err } = await connector.ended;
  expect(code, err).toBe(0);
  expect(err).not.toContain("has ended");
});

test("a receiver verifies what a connector sends, and its response is the outcome", async () => {
  const server = await startPulled();
  const bodies: string[] = [];
  const app = await startApp(async (request) => {
    const body = await request.text();
    bodies.push(body);
    const url = request.url.replace("http:", "https:");
    const isValid = await receiver
      .verify({ signature: request.headers.get("upstash-signature") ?? "", body, url })
      .catch(() => false);
    return new Response(`valid: ${isValid}`, { status: isValid ? 200 : 401 });
  });
  await connect(server.url, app, "--concurrency", "2");
  const qstash = new Client({ baseUrl: server.url, token: developmentToken });
  const sent = await Promise.all(
    [1, 2, 3, 4, 5].map((order) =>
      qstash.publishJSON({ url: `${origin}/orders?n=${order}`, body: { order } }),
    ),
  );
  for (const { messageId } of sent) await untilState(server.url, messageId, "delivered");
  expect(bodies.toSorted()).toEqual([1, 2, 3, 4, 5].map((order) => JSON.stringify({ order })));
});

test("a response with more headers than a report may have is delivered, once", async () => {
  const server = await startPulled();
  let calls = 0;
  const app = await startApp(async () => {
    calls++;
    return new Response("done", { headers: Array.from({ length: 120 }, (_, at) => [`x-${at}`, "1"]) });
  });
  const connector = await connect(server.url, app);
  const id = await publish(server.url, "/many", { "svc-retries": "1" });
  await untilState(server.url, id, "delivered");
  expect(calls).toBe(1);
  // The connector writes this after the server has responded.
  const note = "only the status of the response is reported: headers: at most 100";
  await expect.poll(() => connector.err()).toContain(note);
});

test("a response that is too long is reported without its rest, which is said", async () => {
  const server = await startPulled();
  const app = await startApp(async () => new Response("a".repeat(limits.messageBytes + 1)));
  const connector = await connect(server.url, app);
  const id = await publish(server.url, "/long", { "svc-retries": "0" });
  await untilState(server.url, id, "delivered");
  expect(connector.err()).toBe(
    `waypost: the response is longer than ${limits.messageBytes} bytes, and its rest is dropped\n`,
  );
});

test("without a program, the attempt fails like any other, and the message is sent again", async () => {
  const server = await startPulled();
  const unused = await startDestination();
  const closed = await startApp(async () => new Response());
  const connector = await connect(server.url, closed.replace(/\d+$/, "9"));
  const id = await publish(server.url, "/work", { "svc-retries": "1", "svc-retry-delay": "1000" });
  await expect.poll(() => connector.out()).toContain("502");
  connector.kill("SIGTERM");
  await connector.ended;
  await connect(server.url, unused.url);
  await untilState(server.url, id, "delivered");
  expect(unused.arrivals.map(({ headers }) => [headers.host, headers["svc-retried"]])).toEqual([
    ["app.internal", "1"],
  ]);
});

test("a connector of a source forwards its calls to a local program", async () => {
  const server = await startPulled();
  const app = await startDestination();
  const post = (path: string, body: object) =>
    ask(server.url, path, { method: "POST", body: JSON.stringify(body) });
  const { url } = await post("/v2/sources", { name: "code", destination: `${origin}/hook?from=code` });
  const args = ["connect", "--source", "code", "--to", app.url];
  const connector = startCommand(args, { WAYPOST_URL: server.url, ...client });
  await expect.poll(() => connector.out()).toContain(`connected ${origin} to`);
  await fetch(String(url), { method: "POST", body: "pushed" });
  await app.until((arrivals) => arrivals.length === 1);
  expect(app.arrivals[0]).toMatchObject({ path: "/hook?from=code", body: Buffer.from("pushed") });

  await post("/v2/topics/all/endpoints", { endpoints: [{ name: "a", url: origin }] });
  const { sourceId: ofGroup } = await post("/v2/sources", { name: "group", destination: "all" });
  await post("/v2/sources", { name: "code", destination: `${origin}/other` });
  const run = commandsFor(server.url);
  for (const [words, code, said] of [
    [["--source", "nothing"], 3, '--source: there is no source "nothing"'],
    [["--source", "code"], 2, '--source: several sources are named "code"; give an id: src_'],
    [["--source", String(ofGroup)], 2, "publishes to the URL group all"],
    [["--source", "code", origin], 2, "connect: give either an origin or --source"],
    [[], 2, "connect: give either an origin or --source"],
  ] as const)
    expect(await run("connect", ...words, "--to", app.url)).toMatchObject({
      ...{ code, out: "", err: expect.stringContaining(said) },
    });
});

test("a connector finishes what it runs, takes nothing more, and needs a pulled origin", async () => {
  const server = await startPulled();
  const app = await startDestination(() => ({ status: 200, after: 1_500 }));
  const connector = await connect(server.url, app.url, "--concurrency", "1");
  const first = await publish(server.url, "/a");
  await app.until((arrivals) => arrivals.length === 1);
  const second = await publish(server.url, "/b");
  connector.kill("SIGINT");
  expect((await connector.ended).code).toBe(0);
  await untilState(server.url, first, "delivered");
  expect(app.arrivals).toHaveLength(1);
  await untilState(server.url, second, "held");
  const wrong = await commandsFor(server.url)("connect", "https://other.internal", "--to", app.url);
  expect(wrong).toMatchObject({
    ...{ code: 3, out: "" },
    err: expect.stringContaining("https://other.internal is not pulled"),
  });
});

test("a server that is killed after a pull takes the report after its restart", async () => {
  const data = temporaryFolder();
  const server = await startPulled(data);
  const { port } = new URL(server.url);
  const app = await startDestination(() => ({ status: 200, after: 2_000 }));
  const connector = await connect(server.url, app.url);
  const id = await publish(server.url, "/a");
  await app.until((arrivals) => arrivals.length === 1);
  await untilState(server.url, id, "acknowledging");
  server.kill("SIGKILL");
  await server.ended;
  const again = await startWaypost(["dev", "--port", port, "--data", data]);
  await untilState(again.url, id, "delivered");
  expect(app.arrivals).toHaveLength(1);
  const next = await publish(again.url, "/b");
  await untilState(again.url, next, "delivered");
  connector.kill("SIGINT");
  expect((await connector.ended).code).toBe(0);
});

test("the messages of a killed connector go to another one", { tags: "long" }, async () => {
  const server = await startPulled();
  const slow = await startDestination(() => ({ status: 200, after: 600_000 }));
  const quick = await startDestination();
  const killed = await connect(server.url, slow.url);
  const id = await publish(server.url, "/a", { "svc-retry-delay": "1000" });
  await slow.until((arrivals) => arrivals.length === 1);
  killed.kill("SIGKILL");
  await killed.ended;
  await connect(server.url, quick.url);
  await untilState(server.url, id, "delivered");
  expect(quick.arrivals).toHaveLength(1);
});
