import { once } from "node:events";
import { createServer } from "node:net";
import type { AddressInfo } from "node:net";
import { expect, onTestFinished } from "vitest";
import { developmentToken, startWaypost, temporaryFolder } from "./waypost.ts";

// An endpoint of runs that controls its connections, and requests to real servers.

/** A call of a run. `connection`: the number of its connection. */
export type Arrived = {
  connection: number;
  history: { body: string }[];
  runId: string;
  messageId: string;
  retried: string;
  region: string;
};
type AskOptions = { body?: string; headers?: Record<string, string> };
/** Sends a request to a server. `path` is below `/v2`. */
export type Ask = (
  method: string,
  path: string,
  options?: AskOptions,
) => Promise<{ status: number; body: unknown }>;

/**
 * Starts an endpoint. `respond` gets each call, and returns the status of its response. False: the connection
 * is closed without a response. If the promise does not resolve, there is no response.
 */
export async function startEndpoint(respond: (arrived: Arrived) => Promise<number | false>) {
  const arrivals: Arrived[] = [];
  let connections = 0;
  let isOver = false;
  const server = createServer((socket) => {
    const connection = ++connections;
    let text = "";
    socket.on("error", () => undefined);
    socket.on("data", async (bytes) => {
      text += bytes.toString("latin1");
      const [head = "", body] = text.split("\r\n\r\n");
      const length = Number(/content-length: (\d+)/i.exec(head)?.[1] ?? 0);
      if (body === undefined || body.length < length) return;
      text = "";
      const read = (name: string): string => new RegExp(`${name}: (\\S+)`, "i").exec(head)?.[1] ?? "";
      const arrived = {
        connection,
        history: JSON.parse(body) as { body: string }[],
        runId: read("upstash-workflow-runid"),
        messageId: read("upstash-message-id"),
        retried: read("(?:upstash|svc)-retried"),
        region: read("upstash-region"),
      };
      arrivals.push(arrived);
      const status = await respond(arrived).catch((error: unknown) => {
        // The server may end before the last response has arrived.
        if (isOver) return false;
        throw error;
      });
      const sdk = "upstash-workflow-sdk-version: 1\r\nupstash-workflow-sdk: v1.0.0\r\n";
      if (status === false) socket.destroy();
      else socket.write(`HTTP/1.1 ${status} X\r\n${sdk}content-length: 0\r\n\r\n`);
    });
  });
  server.listen(0, "127.0.0.1");
  await once(server, "listening");
  onTestFinished(() => {
    isOver = true;
    server.close();
  });
  const url = `http://127.0.0.1:${(server.address() as AddressInfo).port}/flow`;
  return { arrivals, url };
}

/** Returns the requests to a server with this token. */
export const createAsk =
  ({ url }: { url: string }, token = developmentToken): Ask =>
  async (method, path, { body, headers = {} } = {}) => {
    const response = await fetch(`${url}/v2/${path}`, {
      method,
      headers: { authorization: `Bearer ${token}`, ...headers },
      ...(body === undefined ? {} : { body }),
    });
    return { status: response.status, body: await response.json() };
  };

/** Starts a server for development with its own data. */
export async function startServer(...args: string[]) {
  const server = await startWaypost(["dev", "--port", "0", "--data", temporaryFolder(), ...args]);
  return { server, ask: createAsk(server) };
}

type StepOptions = { stepId?: number; runOn?: string };

/** Posts the result of a step. `runOn` asks to continue in the call that it names. */
export function postStep(
  ask: Ask,
  { url, runId, stepId = 1, runOn }: StepOptions & { url: string; runId: string },
): ReturnType<Ask> {
  const step = { stepId, stepName: `s${stepId}`, stepType: "Run", out: String(stepId), concurrent: 1 };
  const sent = {
    "Upstash-Workflow-RunId": runId,
    "Upstash-Workflow-Init": "false",
    ...(runOn === undefined ? {} : { "Upstash-Workflow-Run-On": runOn }),
  };
  const body = JSON.stringify([{ destination: url, headers: sent, body: JSON.stringify(step) }]);
  return ask("POST", "batch", { body, headers: { "content-type": "application/json" } });
}

/** Reports the end of a run. */
export const finishRun = (ask: Ask, runId: string): ReturnType<Ask> =>
  ask("DELETE", `workflows/runs/${runId}?cancel=false`, { body: "1" });

/** Starts the run `r` as a caller without a client does, by default without retries. */
export const trigger = (ask: Ask, url: string, headers: Record<string, string> = {}): ReturnType<Ask> =>
  ask("POST", `trigger/${url}`, {
    body: "{}",
    headers: { "Upstash-Workflow-RunId": "r", "Upstash-Retries": "0", ...headers },
  });

/** Starts the run `r` as a client does, by default without retries. Its posts settle the calls of the run. */
export const startRun = (ask: Ask, url: string, headers: Record<string, string> = {}): ReturnType<Ask> =>
  ask("POST", `publish/${url}`, {
    body: "{}",
    headers: {
      "Upstash-Workflow-RunId": "r",
      "Upstash-Workflow-Init": "true",
      "Upstash-Workflow-Url": url,
      "Upstash-Workflow-Sdk-Version": "1",
      "Upstash-Feature-Set": "LazyFetch,InitialBody,WF_DetectTrigger,WF_TriggerOnConfig",
      "Upstash-Retries": "0",
      ...headers,
    },
  });

/** Waits until the run `r` has succeeded. */
export async function waitForSuccess(ask: Ask): Promise<void> {
  const read = async (): Promise<unknown> =>
    ((await ask("GET", "workflows/runs/r/status")).body as Record<string, unknown>)["workflowState"];
  await expect.poll(read).toBe("RUN_SUCCESS");
}
