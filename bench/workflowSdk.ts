/**
 * A workflow endpoint with the published client `@upstash/workflow`, in its own process. It also triggers the
 * runs.
 */
import type { ServerResponse } from "node:http";
import { Client } from "@upstash/qstash";
import { serve, type RouteFunction } from "@upstash/workflow";
import { runOn } from "../launch/workflow.js";
import { serveDriver } from "./benchProcess.ts";
import { stepResult } from "./stepTurn.ts";
import { type EndpointCall, type RunTurn, serveEndpoint } from "./workflowRuns.ts";

type Handler = (request: Request) => Promise<Response>;

/** One handler for each turn, because a turn has its own server. */
const handlers = new WeakMap<RunTurn, Handler>();

/** Runs whose code has returned. The client stores their end before its handler returns. */
const atEnd = new Set<string>();

function makeHandler(turn: RunTurn): Handler {
  const { port, token, steps, runsOn } = turn.of;
  const route: RouteFunction<string> = async (context) => {
    const runId = context.workflowRunId;
    const number = turn.find(runId) ?? 0;
    for (let step = 1; step <= steps; step++) {
      let isExecuted = false;
      await context.run(`step ${step}`, () => {
        isExecuted = true;
        turn.stepBegins(number, step);
        return stepResult;
      });
      // A call continues after a step only if the step has run on.
      if (isExecuted) turn.stepEnded();
    }
    atEnd.add(runId);
    return "done";
  };
  const { handler } = serve<string>(runsOn === true ? runOn(route) : route, {
    // Deliveries are not verified, like those of Restate.
    env: {},
    url: turn.url,
    qstashClient: new Client({ baseUrl: `http://127.0.0.1:${port}`, token }),
    disableTelemetry: true,
  });
  return handler;
}

async function call(
  { turn, number, runId, request, body }: EndpointCall,
  outgoing: ServerResponse,
): Promise<void> {
  const handler = handlers.get(turn) ?? makeHandler(turn);
  handlers.set(turn, handler);
  const headers = Object.entries(request.headers).map(([name, value]): [string, string] => [
    name,
    String(value),
  ]);
  const response = await handler(new Request(turn.url, { method: "POST", headers, body }));
  const text = await response.text();
  if (response.status >= 300) throw new Error(`The client responded with ${response.status}: ${text}`);
  outgoing.writeHead(response.status, Object.fromEntries(response.headers)).end(text);
  if (atEnd.delete(runId)) turn.runEnded(number);
  else turn.stepEnded();
}

serveDriver(serveEndpoint(call));
