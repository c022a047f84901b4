/**
 * A server that stores nothing, in its own process. It accepts a publish, answers 201 with an id, and signs
 * and forwards the message. No server of this kind can do less than one inbound and one outbound request per
 * message.
 */
import { createServer, type IncomingMessage, type ServerResponse } from "node:http";
import type { AddressInfo } from "node:net";
import { Agent, type Dispatcher } from "undici";
import { serveDriver } from "./benchProcess.ts";
import { makeHeaders, newId } from "./signing.ts";

/** The requests that the pass-through handles. */
export type PassThroughAnswers = typeof answers;

const prefix = "/v2/publish/";
const nothing: Dispatcher.DispatchHandler = {
  onRequestStart: () => undefined,
  onResponseStart: () => undefined,
  onResponseData: () => undefined,
  onResponseEnd: () => undefined,
  onResponseError: (_controller, error) => {
    throw error;
  },
};

const answers = {
  listen: async ({ connections }: { connections: number }): Promise<{ port: number }> => {
    const agent = new Agent({ connections, pipelining: 1 });
    const server = createServer((request, response) => take(agent, request, response));
    await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", 4096, resolve));
    return { port: (server.address() as AddressInfo).port };
  },
};

function take(agent: Agent, request: IncomingMessage, response: ServerResponse): void {
  const chunks: Buffer[] = [];
  request.on("data", (chunk: Buffer) => chunks.push(chunk));
  request.on("end", () => {
    if (request.method === "DELETE") return void response.end("{}");
    if (request.url === "/v2/batch") return forwardSteps(agent, Buffer.concat(chunks), response);
    const id = newId();
    const answer = `{"messageId":"${id}"}`;
    response.writeHead(201, { "Content-Type": "application/json", "Content-Length": answer.length });
    response.end(answer);
    const body = chunks.length === 1 && chunks[0] ? chunks[0] : Buffer.concat(chunks);
    forward(agent, {
      id,
      url: (request.url ?? "").slice(prefix.length),
      contentType: request.headers["content-type"] ?? "",
      body,
    });
  });
}

type Item = { destination: string; headers: Record<string, string>; body: string };

/** Forwards steps of workflows. Each is sent to the endpoint as a complete history. */
function forwardSteps(agent: Agent, posted: Buffer, response: ServerResponse): void {
  const items = JSON.parse(posted.toString()) as Item[];
  const ids = items.map(newId);
  response.setHeader("Content-Type", "application/json");
  response.end(JSON.stringify(ids.map((messageId) => ({ messageId }))));
  items.forEach(({ destination: url, headers, body: text }, index) => {
    const id = ids[index] ?? "";
    const payload = { messageId: id, body: "", callType: "step" };
    const step = { messageId: id, body: Buffer.from(text).toString("base64"), callType: "step" };
    const body = Buffer.from(
      JSON.stringify(headers["upstash-workflow-init"] === "true" ? [step] : [payload, step]),
    );
    forward(agent, {
      id,
      url,
      contentType: "application/json",
      body,
      runId: headers["upstash-workflow-runid"] ?? "",
    });
  });
}

type Forwarded = { id: string; url: string; contentType: string; body: Buffer; runId?: string };

function forward(agent: Agent, { id, url, contentType, body, runId }: Forwarded): void {
  const pathAt = url.indexOf("/", url.indexOf("//") + 2);
  const headers = {
    ...makeHeaders({ id, url, contentType, body }),
    ...(runId === undefined ? {} : { "Upstash-Workflow-RunId": runId }),
  };
  agent.dispatch(
    { origin: url.slice(0, pathAt), path: url.slice(pathAt), method: "POST", headers, body },
    nothing,
  );
}

serveDriver(answers);
