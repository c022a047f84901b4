import { spawn } from "node:child_process";
import { once } from "node:events";
import { createInterface } from "node:readline";
import { expect, onTestFinished, test } from "vitest";
import { ask, connect, publish, startApp, startPulled, untilState } from "./connecting.ts";
import { startDestination } from "./waypost.ts";

// A connector that stops, and reports that the server refuses.

/** Starts a program that takes no connection: the system keeps a few that wait, and lets the others wait. */
async function startDeaf(): Promise<string> {
  const program = `
    const server = require("node:net").createServer().listen({ port: 0, host: "127.0.0.1", backlog: 1 });
    server.on("listening", () => {
      require("node:fs").writeSync(1, server.address().port + "\\n");
      Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0);
    });`;
  const child = spawn(process.execPath, ["-e", program], { stdio: ["ignore", "pipe", "inherit"] });
  onTestFinished(() => void child.kill("SIGKILL"));
  const [port] = (await once(createInterface({ input: child.stdout }), "line")) as [string];
  return `http://127.0.0.1:${port}`;
}

type Event = { messageId: string; error?: string };
const errors = async (server: string): Promise<Event[]> =>
  (await ask(server, "/v2/events?state=ERROR"))["events"] as Event[];

test("a connector that stops gives back what it has not sent, and says what is cut off", async () => {
  const server = await startPulled();
  const connector = await connect(server.url, await startDeaf());
  const ids = await Promise.all([1, 2, 3, 4, 5].map((n) => publish(server.url, `/${n}`)));
  for (const id of ids) await untilState(server.url, id, "acknowledging");
  connector.kill("SIGINT");
  const { code, err } = await connector.ended;
  const [, running] =
    /waits up to 5 s for (\d) running requests?; another Ctrl-C cuts them off/.exec(err) ?? [];
  const [, returned] = /gave back (\d) messages?, not sent to the program/.exec(err) ?? [];
  const [, cut] = /cut off (\d) requests?: without a report, .* fail within 30 s/.exec(err) ?? [];
  expect([code, cut, Number(running) + Number(returned)], err).toEqual([130, running, 5]);
  expect(Number(returned)).toBeGreaterThan(0);
  const givenBack = await errors(server.url);
  expect(givenBack.map(({ error }) => error)).toEqual(
    Array.from({ length: Number(returned) }, () => "the client that pulled the attempt gave it back"),
  );
  // Another connector gets them at once, while the others are still held.
  const quick = await startDestination();
  await connect(server.url, quick.url);
  for (const { messageId } of givenBack) await untilState(server.url, messageId, "delivered");
  expect(quick.arrivals.map(({ headers }) => headers["svc-retried"])).toEqual(givenBack.map(() => "0"));
});

/** Starts a connector with a request that lasts longer than the test. */
async function startBusy() {
  const server = await startPulled();
  const slow = await startDestination(() => ({ status: 200, after: 600_000 }));
  const connector = await connect(server.url, slow.url);
  await publish(server.url, "/a");
  await slow.until((arrivals) => arrivals.length === 1);
  return connector;
}

test("a second Ctrl-C ends a connector at once, which says what happens", async () => {
  const [connector, patient] = await Promise.all([startBusy(), startBusy()]);
  connector.kill("SIGINT");
  await expect.poll(() => connector.err()).toContain("waits up to 5 s for 1 running request; another Ctrl-C");
  // Signals within a second are one Ctrl-C, which passed through several programs.
  connector.kill("SIGINT");
  await new Promise((resolve) => setTimeout(resolve, 1_200));
  expect(connector.err()).not.toContain("cut off 1");
  // This one waits for its request from now on.
  patient.kill("SIGINT");
  connector.kill("SIGINT");
  const { code, err } = await Promise.race([
    connector.ended,
    patient.ended.then(() => ({ code: 0, err: "waited" })),
  ]);
  expect([code, err]).toEqual([130, expect.stringContaining("cut off 1 request")]);
});

test.each([
  ["cancelled", (id: string) => ["DELETE", `/v2/messages/${id}`], "its message was delivered, has failed or"],
  [
    "ended",
    (id: string) => ["POST", `/v2/messages/${id}/end-attempt?attempt=0`],
    "its message is sent again",
  ],
])("a connector says that a success does not count, because the attempt was %s", async (_, act, said) => {
  const server = await startPulled();
  let calls = 0;
  const app = await startApp(async (request) => {
    const [method = "", path = ""] = act(request.headers.get("svc-message-id") ?? "");
    if (calls++ === 0) await ask(server.url, path, { method });
    return new Response("done");
  });
  const connector = await connect(server.url, app);
  const id = await publish(server.url, "/a");
  await expect
    .poll(() => connector.err())
    .toContain(`waypost: ${id}: the local program answered 200, but the attempt has ended: `);
  expect(connector.err()).toContain(said);
});
