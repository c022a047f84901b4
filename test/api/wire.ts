import { Agent, request as httpRequest } from "node:http";
import { connect } from "node:net";
import type { TestServer } from "./testServer.ts";
import { readText } from "./readText.ts";
import { portOf } from "./testServer.ts";

/** A response as it was read from the connection. */
export type WireReply = { status: number; head: string; body: string };

/** Makes a server listen on loopback. Returns the port. */
export const listen = ({ api }: TestServer): Promise<number> => portOf(api);

/**
 * Sends exactly these bytes (text is latin 1). Returns what the server sent until it ended the connection.
 */
export function send(port: number, bytes: string | Buffer): Promise<string> {
  return new Promise((resolve, reject) => {
    const socket = connect(port, "127.0.0.1", () =>
      socket.write(typeof bytes === "string" ? Buffer.from(bytes, "latin1") : bytes),
    );
    const received: Buffer[] = [];
    const end = (): void => resolve(Buffer.concat(received).toString("latin1"));
    socket.on("data", (chunk: Buffer) => received.push(chunk));
    socket.on("end", () => socket.end());
    socket.on("close", end);
    socket.on("error", (error: NodeJS.ErrnoException) =>
      received.length > 0 || error.code === "ECONNRESET" || error.code === "EPIPE" ? end() : reject(error),
    );
  });
}

/** Returns the first response in the received bytes. */
export function parseReply(received: string): WireReply {
  const [head = "", ...rest] = received.split("\r\n\r\n");
  return { status: Number(/^HTTP\/1\.1 (\d{3})/.exec(head)?.[1] ?? 0), head, body: rest.join("\r\n\r\n") };
}

/** Returns a request with `Connection: close` and these header lines, unchanged. */
export const request = (line: string, headers: readonly string[] = [], body = ""): string =>
  [
    line,
    "Host: x",
    "Connection: close",
    `Content-Length: ${Buffer.byteLength(body, "latin1")}`,
    ...headers,
    "",
    body,
  ].join("\r\n");

type Question = {
  method: string;
  target: string;
  headers?: Record<string, string>;
  body?: string | Uint8Array;
};

/** Returns a client that keeps its connections and sends the target unchanged. */
export function createRawClient(
  port: number,
  token: string,
): { ask(question: Question): Promise<{ status: number; text: string }>; close(): void } {
  const agent = new Agent({ keepAlive: true, maxSockets: 4 });
  const ask = ({
    method,
    target,
    headers = {},
    body = "",
  }: Question): Promise<{ status: number; text: string }> =>
    new Promise((resolve, reject) => {
      const given = {
        ...headers,
        authorization: `Bearer ${token}`,
        "content-length": String(Buffer.byteLength(body)),
      };
      const request = httpRequest(
        { host: "127.0.0.1", port, agent, method, path: target, headers: given },
        (response) => {
          readText(response, response.headers).then(
            (text) => resolve({ status: response.statusCode ?? 0, text }),
            reject,
          );
        },
      );
      request.on("error", reject);
      request.end(body);
    });
  return { ask, close: () => agent.destroy() };
}
