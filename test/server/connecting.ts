import { once } from "node:events";
import { createServer } from "node:http";
import type { AddressInfo } from "node:net";
import { expect, onTestFinished } from "vitest";
import { commandsFor, startCommand } from "../client/startCommand.ts";
import { developmentToken, startWaypost, temporaryFolder } from "./waypost.ts";

// Parts of the tests of `waypost connect`.

export const origin = "https://app.internal";
export const client = { WAYPOST_TOKEN: developmentToken };

/** Starts a server with the pulled origin. */
export async function startPulled(data = temporaryFolder()) {
  const server = await startWaypost(["dev", "--port", "0", "--data", data]);
  expect((await commandsFor(server.url)("pulled", "set", origin)).code).toBe(0);
  return server;
}

/** Starts a connector, and waits until it says that it is connected. */
export async function connect(server: string, to: string, ...more: string[]) {
  const args = ["connect", origin, "--to", to, ...more];
  const connector = startCommand(args, { WAYPOST_URL: server, ...client });
  await expect.poll(() => connector.out()).toContain("connected");
  return connector;
}

/** Asks the server, and returns the body of its response. */
export async function ask(server: string, path: string, init: RequestInit = {}) {
  const headers = { authorization: `Bearer ${developmentToken}`, ...init.headers };
  const response = await fetch(`${server}${path}`, { ...init, headers });
  return (await response.json()) as Record<string, unknown>;
}

/** Publishes a message to the pulled origin, and returns its id. */
export const publish = async (server: string, path: string, headers: Record<string, string> = {}) =>
  String(
    (await ask(server, `/v2/publish/${origin}${path}`, { method: "POST", body: "hello", headers }))[
      "messageId"
    ],
  );

/** Waits until a message is in a state. */
export async function untilState(server: string, id: string, state: string): Promise<void> {
  const read = async () => (await ask(server, `/v2/messages/${id}`))["state"];
  await expect.poll(read, { timeout: 60_000, interval: 100 }).toBe(state);
}

type Handler = (request: Request) => Promise<Response>;

/** Starts a server for a handler of the web standard, as frameworks do. */
export async function startApp(handler: Handler): Promise<string> {
  const server = createServer(async (incoming, outgoing) => {
    const chunks: Buffer[] = [];
    for await (const chunk of incoming) chunks.push(chunk as Buffer);
    const { method = "", headers } = incoming;
    const url = `http://${headers.host}${incoming.url}`;
    const body = Buffer.concat(chunks);
    const request = new Request(url, { method, headers: headers as Record<string, string>, body });
    const response = await handler(request);
    outgoing.writeHead(response.status, Object.fromEntries(response.headers)).end(await response.text());
  });
  server.listen(0, "127.0.0.1");
  await once(server, "listening");
  onTestFinished(() => void (server.closeAllConnections(), server.close()));
  return `http://127.0.0.1:${(server.address() as AddressInfo).port}`;
}
