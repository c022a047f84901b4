import { once } from "node:events";
import { createServer } from "node:http";
import type { AddressInfo } from "node:net";
import { expect, onTestFinished, test } from "vitest";
import type { Process } from "./waypost.ts";
import { developmentToken, startDestination, startWaypost, temporaryFolder } from "./waypost.ts";

// Reports to the operator: the log, the health, and the reasons in the log of messages.
/** The fields of responses that are used. */
type Said = {
  messageId: string;
  inFlight: number;
  events: { state: string; error?: string }[];
  waitingOn: { node: string }[];
};

type RequestOptions = { method?: string; headers?: Record<string, string> };

const ask = async (
  server: Pick<Process, "url">,
  path: string,
  { method = "GET", headers = {} }: RequestOptions = {},
): Promise<Said> => {
  const reply = await fetch(`${server.url}${path}`, {
    method,
    headers: { authorization: `Bearer ${developmentToken}`, ...headers },
  });
  return (await reply.json()) as Said;
};

/** Repeats a request until the response is as expected. */
async function until(server: Process, path: string, is: (answer: Said) => boolean): Promise<Said> {
  for (;;) {
    const answer = await ask(server, path);
    if (is(answer)) return answer;
    await new Promise((resolve) => setTimeout(resolve, 20));
  }
}

test("a failed message is logged as a warning; a message waiting for a retry is not in flight", async () => {
  const server = await startWaypost(["dev", "--port", "0"]);
  const url = "/v2/publish/http://127.0.0.1:1/secret";
  const failed = await ask(server, url, { method: "POST", headers: { "svc-retries": "0" } });
  const waiting = await Promise.all(
    [1, 2, 3, 4, 5].map(() =>
      ask(server, url, { method: "POST", headers: { "svc-retry-delay": "3600000" } }),
    ),
  );
  for (const { messageId } of [failed, ...waiting])
    await until(server, `/v2/logs?messageId=${messageId}`, ({ events }) =>
      events.some(({ state }) => /FAILED|RETRY/.test(state)),
    );
  expect(await until(server, "/v2/health", ({ inFlight }) => inFlight === 0)).toEqual({
    inFlight: 0,
    status: "ok",
  });
  server.kill("SIGTERM");
  const { err } = await server.ended;
  const lines = err.split("\n").filter((line) => line.includes('"msg":"attempt"'));
  const told = lines
    .map((line) => JSON.parse(line))
    .map(({ level, messageId, settled, host }) => ({ level, messageId, settled, host }));
  const host = "127.0.0.1:1";
  const expected = [
    { level: 40, messageId: failed.messageId, settled: "failed", host },
    ...waiting.map(({ messageId }) => ({ level: 30, messageId, settled: "retry", host })),
  ];
  expect(new Set(told)).toEqual(new Set(expected));
  expect(err).not.toContain("secret");
});

test("messages in flight on a killed server are sent again; the log names the node", async () => {
  let arrived = 0;
  const destination = createServer((_, response) => {
    if (++arrived > 1) response.end();
  }).listen(0, "127.0.0.1");
  await once(destination, "listening");
  onTestFinished(() => void (destination.closeAllConnections(), destination.close()));
  const data = temporaryFolder();
  const first = await startWaypost(["dev", "--port", "0", "--data", data]);
  const url = `http://127.0.0.1:${(destination.address() as AddressInfo).port}/`;
  const { messageId } = await ask(first, `/v2/publish/${url}`, { method: "POST" });
  while (arrived === 0) await new Promise((resolve) => setTimeout(resolve, 10));
  const { waitingOn } = await ask(first, `/v2/messages/${messageId}`);
  first.kill("SIGKILL");
  await first.ended;
  const second = await startWaypost(["dev", "--port", "0", "--data", data]);
  const { events } = await until(second, `/v2/logs?messageId=${messageId}`, (log) =>
    log.events.some(({ state }) => state === "DELIVERED"),
  );
  const error = `no report: the server was restarted while node ${waitingOn[0]?.node} was sending it`;
  expect(events.map((event) => [event.state, event.error]).filter(([state]) => state === "ERROR")).toEqual([
    ["ERROR", error],
  ]);
});

test("the start of a server is logged with its version, its store and what was recovered", async () => {
  const data = temporaryFolder();
  const destination = await startDestination(() => ({ status: 200, after: 60_000 }));
  const first = await startWaypost(["dev", "--port", "0", "--data", data]);
  await ask(first, `/v2/publish/${destination.url}/slow`, { method: "POST" });
  await destination.until((arrivals) => arrivals.length === 1);
  first.kill("SIGKILL");
  await first.ended;
  const second = await startWaypost(["dev", "--port", "0", "--data", data]);
  await destination.until((arrivals) => arrivals.length === 2);
  second.kill("SIGKILL");
  const started = [(await first.ended).err, (await second.ended).err].map((log) =>
    log
      .split("\n")
      .filter((line) => line.includes('"started"'))
      .map((line) => JSON.parse(line) as Record<string, unknown>),
  );
  const line = { version: expect.stringMatching(/^\d+\.\d+\.\d+/), store: "sqlite", msg: "started" };
  expect(started).toMatchObject([[{ ...line, recovered: 0 }], [{ ...line, recovered: 1 }]]);
});
