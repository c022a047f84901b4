// @module-tag long
import { randomUUID } from "node:crypto";
import { setTimeout as pause } from "node:timers/promises";
import { Client as Messages } from "@upstash/qstash";
import { expect, test } from "vitest";
import { Client, serve } from "workflow-0.2";
import { findFreePort } from "../../freePort.ts";
import type { Process } from "../../server/waypost.ts";
import { developmentToken, startWaypost, temporaryFolder } from "../../server/waypost.ts";
import { shareWorkflowServer } from "../workflowTestServer.ts";

// The workflows of LobeHub, with its client, while the server is killed.

/** The number of runs, and how many have ended when the server is killed. */
const count = 1_000;
const kills = [150, 400, 650];
const minute = 60_000;

// Only its server for the endpoints of workflows is used.
const house = shareWorkflowServer();

/** Repeats a call while the server is down. */
async function persist<T>(call: () => Promise<T>): Promise<T> {
  for (;;) {
    try {
      return await call();
    } catch {
      await pause(50);
    }
  }
}

test(
  `${count} runs end, although the server is killed ${kills.length} times`,
  { timeout: 15 * minute },
  async () => {
    const port = String(await findFreePort());
    const data = temporaryFolder();
    const start = (): Promise<Process> => startWaypost(["dev", "--port", port, "--data", data]);
    let server = await start();
    const place = { baseUrl: server.url, token: developmentToken };
    const done = new Map<string, number>();
    const { handler } = serve<{ n: number }>(
      async (context) => {
        const { n } = context.requestPayload;
        const topics = await context.run("list", () => [n, n + 1]);
        const parts = await Promise.all(topics.map((topic) => context.run("extract", () => topic * 2)));
        await context.sleep("pause", 1);
        const sum = await context.run("store", () => parts.reduce((total, part) => total + part, 0));
        done.set(context.workflowRunId, sum);
      },
      { qstashClient: new Messages(place), env: {}, verbose: undefined } as never,
    );
    const work = house.createUser().at(`/api/workflows/${randomUUID()}/memory/process`, handler);
    const client = new Client(place);
    const ids = Array.from({ length: count }, (_, n) => ({ n, workflowRunId: `m${n}-${randomUUID()}` }));
    const trigger = async (): Promise<void> => {
      for (let one = ids.pop(); one !== undefined; one = ids.pop()) {
        const { n, workflowRunId } = one;
        const flowControl = { key: "memory", parallelism: 40 };
        await persist(() => client.trigger({ url: work.url, body: { n }, workflowRunId, flowControl }));
      }
    };
    const triggered = Promise.all(Array.from({ length: 8 }, trigger));
    for (const ended of kills) {
      while (done.size < ended) await pause(20);
      server.kill("SIGKILL");
      await server.ended;
      server = await start();
    }
    await triggered;
    const list = async (state: "RUN_STARTED" | "RUN_SUCCESS" | "RUN_FAILED") => {
      const runs: string[] = [];
      let cursor: string | undefined;
      do {
        const page = await client.logs({ state, count: 100, ...(cursor && { cursor }) });
        runs.push(...page.runs.map(({ workflowRunId }) => workflowRunId));
        cursor = page.cursor || undefined;
      } while (cursor !== undefined);
      return runs;
    };
    while (done.size < count) await pause(50);
    await expect.poll(() => list("RUN_STARTED"), { timeout: minute, interval: 500 }).toEqual([]);
    expect(await list("RUN_FAILED")).toEqual([]);
    const succeeded = await list("RUN_SUCCESS");
    expect(new Set(succeeded).size).toBe(count);
    expect(new Set(succeeded)).toEqual(new Set(done.keys()));
    for (const [id, sum] of done) expect(sum).toBe(4 * Number(/^wfr_m(\d+)-/.exec(id)?.[1]) + 2);
    expect((await client.dlq.list()).messages).toEqual([]);
    server.kill("SIGTERM");
    expect((await server.ended).code).toBe(0);
  },
);
