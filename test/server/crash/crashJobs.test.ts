// @module-tag long
import { setTimeout as pause } from "node:timers/promises";
import { expect, test } from "vitest";
import { developmentToken, startDestination, startWaypost, temporaryFolder } from "../waypost.ts";

const count = 60;
const kills = 4;

test("a job retries each dead letter once, although the server is killed repeatedly", async () => {
  const data = temporaryFolder();
  let isDown = true;
  const destination = await startDestination(() => ({ status: isDown ? 500 : 200 }));
  let server = await startWaypost(["dev", "--port", "0", "--data", data]);
  const ask = async (method: string, path: string, more: { body?: string; headers?: object } = {}) => {
    const response = await fetch(`${server.url}${path}`, {
      method,
      body: more.body ?? null,
      headers: { authorization: `Bearer ${developmentToken}`, ...more.headers },
    });
    return (await response.json()) as Record<string, never>;
  };
  for (let at = 0; at < count; at++)
    await ask("POST", `/v2/publish/${destination.url}/m${at}`, { headers: { "svc-retries": "0" } });
  for (let entries = 0; entries < count; await pause(50))
    entries = Number((await ask("GET", "/v2/dlq/groups"))["entries"]);
  isDown = false;
  destination.arrivals.length = 0;
  const { jobId } = await ask("POST", "/v2/jobs", {
    body: JSON.stringify({ action: "dlq.retry", filter: {}, rate: 20 }),
  });
  const readJob = () => ask("GET", `/v2/jobs/${String(jobId)}`) as Promise<Record<string, unknown>>;
  const seen: number[] = [];
  for (let kill = 0; kill < kills; kill++) {
    await destination.until((arrivals) => arrivals.length >= (kill + 1) * 8);
    server.kill("SIGKILL");
    await server.ended;
    server = await startWaypost(["dev", "--port", "0", "--data", data]);
    seen.push(Number((await readJob())["done"]));
  }
  let job = await readJob();
  while (job["state"] === "running") {
    await pause(100);
    job = await readJob();
  }
  expect(seen.some((done) => done > 0 && done < count)).toBe(true);
  expect(job).toMatchObject({ state: "done", total: count, done: count, failed: 0 });
  await destination.until((arrivals) => new Set(arrivals.map(({ path }) => path)).size === count);
  // A delivery that was in flight at a kill is sent again, with the id of the same message.
  const ids = new Map<string, Set<unknown>>();
  for (const { path, headers } of destination.arrivals)
    ids.set(
      path,
      (ids.get(path) ?? new Set()).add(headers["upstash-message-id"] ?? headers["svc-message-id"]),
    );
  expect([...ids].filter(([, messages]) => messages.size !== 1)).toEqual([]);
  expect((await ask("GET", "/v2/dlq"))["messages"]).toEqual([]);
});
