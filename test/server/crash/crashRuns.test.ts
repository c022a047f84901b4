// @module-tag long
import { randomUUID } from "node:crypto";
import { setTimeout as pause } from "node:timers/promises";
import { Agent, request } from "undici";
import { expect, onTestFinished, test } from "vitest";
import { freshDatabase } from "../../postgres.ts";
import { startEndpoint } from "./crashingRuns.ts";
import type { Process } from "../waypost.ts";
import { developmentToken, startWaypost, temporaryFolder } from "../waypost.ts";

/** `portion` is the number of runs that each life of a server gets. */
type Place = { lives: number; portion: number; start: readonly (() => Promise<Process>)[] };

/** A single server, started again after each kill. */
function onSqlite(): Place {
  const data = temporaryFolder();
  return { lives: 5, portion: 40, start: [() => startWaypost(["dev", "--port", "0", "--data", data])] };
}

/**
 * Two nodes, one of which is killed repeatedly. Its leases are taken over by the other, or by itself after
 * the restart.
 */
async function onPostgres(): Promise<Place> {
  const url = await freshDatabase();
  const preload = new URL("../shortLease.ts", import.meta.url).href;
  const start = () =>
    startWaypost(["dev", "--port", "0", "--database-url", url], { NODE_OPTIONS: `--import=${preload}` });
  return { lives: 2, portion: 30, start: [start, start] };
}

const authorization = `Bearer ${developmentToken}`;

type Logged = {
  workflowRunId: string;
  workflowState: string;
  workflowRunResponse: string;
  steps: { steps: { stepId?: number; out?: string }[] }[];
};
type Page = { runs: Logged[]; cursor?: string };
const withBodies = "trimBody=100000";

test.each([
  ["SQLite", onSqlite],
  ["PostgreSQL", onPostgres],
] as const)(
  "every run ends with the right result and single steps, although a server is killed repeatedly: %s",
  async (_, place) => {
    const { lives, portion, start } = await place();
    const agent = new Agent({ connections: 32 });
    onTestFinished(() => agent.destroy());
    const servers = await Promise.all(start.map((one) => one()));
    let turn = 0;
    const next = (): string => servers[turn++ % servers.length]?.url ?? "";
    /** Sends requests to the servers in turn. Null: the server was killed before it responded. */
    const ask = async (
      method: "GET" | "POST" | "DELETE",
      path: string,
      more: { headers?: Record<string, string>; body?: string } = {},
    ) => {
      try {
        const options = {
          method,
          headers: { authorization, ...more.headers },
          body: more.body ?? null,
          dispatcher: agent,
        };
        const { statusCode, body } = await request(`${next()}/v2/${path}`, options);
        return { status: statusCode, text: await body.text() };
      } catch {
        return null;
      }
    };
    const endpoint = await startEndpoint(ask);

    const ids = Array.from({ length: lives * portion }, () => `wfr_${randomUUID()}`);
    for (let life = 0; life < lives; life++) {
      const mine = ids.slice(life * portion, (life + 1) * portion);
      const began = endpoint.begin(mine);
      // The kill comes when some runs are half done, at a different moment each time.
      while (endpoint.calls() < (life + 1) * portion * 4) await pause(5);
      await pause(Math.random() * 1000);
      servers[0]?.kill("SIGKILL");
      await servers[0]?.ended;
      for (const again of start.slice(0, 1)) servers[0] = await again();
      await began;
    }
    await endpoint.finished(ids.length);
    const list = async (query: string): Promise<Page> => {
      const answer = await ask("GET", `workflows/logs?${query}`);
      expect(answer).toMatchObject({ status: 200 });
      return JSON.parse(answer?.text ?? "") as Page;
    };
    while ((await list("state=RUN_STARTED")).runs.length > 0) await pause(20);

    expect(endpoint.broken).toEqual([]);
    const logged: Logged[] = [];
    for (let page = await list(withBodies); ; page = await list(`${withBodies}&cursor=${page.cursor}`)) {
      logged.push(...page.runs);
      if (!page.cursor) break;
    }
    expect(logged.map(({ workflowRunId }) => workflowRunId).toSorted()).toEqual(ids.toSorted());
    for (const { workflowRunId, workflowState, workflowRunResponse, steps } of logged) {
      expect(workflowState).toBe("RUN_SUCCESS");
      const outs = endpoint.resultOf(workflowRunId);
      expect(JSON.parse(workflowRunResponse)).toEqual(outs);
      const shown = steps.flatMap((group) => group.steps).filter(({ stepId }) => stepId !== undefined);
      expect(shown.map(({ stepId }) => stepId)).toEqual([1, 2, 3, 4, 5, 6]);
      for (const { stepId, out } of shown)
        if (stepId !== 5) expect(out).toEqual(outs[(stepId ?? 0) - 1] ?? undefined);
    }
    const reply = await ask("GET", "dlq");
    expect(JSON.parse(reply?.text ?? "")).toEqual({ messages: [] });
    for (const server of servers) server.kill("SIGTERM");
    for (const server of servers) expect((await server.ended).code).toBe(0);
  },
);
