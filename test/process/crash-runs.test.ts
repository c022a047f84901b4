import { randomUUID } from "node:crypto";
import { setTimeout as pause } from "node:timers/promises";
import { Agent, request } from "undici";
import { expect, onTestFinished, test } from "vitest";
import { startEndpoint } from "./crashingRuns.ts";
import { developmentToken, startWaypost, temporaryFolder } from "./waypost.ts";

const lives = 5;
/** Runs that each life of the server is given. */
const portion = 40;
const authorization = `Bearer ${developmentToken}`;

type Logged = {
  workflowRunId: string;
  workflowState: string;
  workflowRunResponse: string;
  steps: { steps: { stepId?: number; out?: string }[] }[];
};
type Page = { runs: Logged[]; cursor?: string };
const withBodies = "trimBody=100000";

test(
  "every run ends with the right result, and no step has two, although the server is killed again and again",
  { timeout: 120_000 },
  async () => {
    const data = temporaryFolder();
    const agent = new Agent({ connections: 32 });
    onTestFinished(() => agent.destroy());
    const start = () => startWaypost(["dev", "--port", "0", "--data", data]);
    let server = await start();
    /** Asks the server that there is. Null: it was gone before it answered. */
    const ask = async (method: "GET" | "POST" | "DELETE", path: string, more: { headers?: Record<string, string>; body?: string } = {}) => {
      try {
        const options = { method, headers: { authorization, ...more.headers }, body: more.body ?? null, dispatcher: agent };
        const { statusCode, body } = await request(`${server.url}/v2/${path}`, options);
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
      // Killed when some of them are half way, at a moment that is another one each time.
      while (endpoint.calls() < (life + 1) * portion * 4) await pause(5);
      await pause(Math.random() * 1000);
      server.kill("SIGKILL");
      await server.ended;
      server = await start();
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
      for (const { stepId, out } of shown) if (stepId !== 5) expect(out).toEqual(outs[(stepId ?? 0) - 1] ?? undefined);
    }
    const letters = await ask("GET", "dlq");
    expect(JSON.parse(letters?.text ?? "")).toEqual({ messages: [] });
    server.kill("SIGTERM");
    expect((await server.ended).code).toBe(0);
  },
);
