import type { Agent, IncomingMessage } from "node:http";
import { request as requestHttp } from "node:http";
import { alarm } from "../engine/clock/clock.ts";
import type { Millis } from "../engine/core/values/basics.ts";
import { limits } from "../engine/core/values/limits.ts";

/** A request for a program on this machine. */
export type LocalRequest = {
  method: string;
  url: URL;
  headers: Readonly<Record<string, readonly string[]>>;
  body: Buffer;
  timeout: Millis;
};

/** A response, as the body of a report of an attempt. */
export type LocalResponse = {
  status: number;
  headers: Record<string, string[]>;
  body: Buffer;
  /** Present if the body was longer than this. The rest was dropped. */
  cutAfter?: number;
  /** Present if there was no response. */
  error?: string;
};

/** A request that runs. `withdraw` ends it if it was not sent yet, and reports whether. */
export type LocalCall = {
  /** The response, or null if the request was withdrawn. */
  response: Promise<LocalResponse | null>;
  withdraw(): boolean;
};

/** Headers of a connection. They do not belong to the response. */
const connectionHeaders: ReadonlySet<string> = new Set([
  ...["connection", "keep-alive", "transfer-encoding", "proxy-authenticate", "upgrade", "trailer", "te"],
]);

/**
 * Sends a request, with the host that it is for, to a program at `to`. A failure becomes a response with
 * status 502 or 504, as that of a proxy. Rejects only if `signal` is aborted, with its reason.
 */
export function sendLocally(
  { method, url, headers, body, timeout }: LocalRequest,
  { to, agent, signal }: { to: URL; agent: Agent; signal: AbortSignal },
): LocalCall {
  let withdraw = (): boolean => false;
  const response = new Promise<LocalResponse | null>((resolve, reject) => {
    const fail = (status: number, error: string): void =>
      resolve({ status, headers: {}, body: Buffer.from(`waypost connect: ${error}`), error });
    const outgoing = requestHttp({
      ...{ method, agent, signal, hostname: to.hostname.replace(/^\[(.*)\]$/, "$1"), port: to.port || 80 },
      path: url.href.slice(url.origin.length),
      setHost: false,
      headers: { ...headers, host: url.host, "content-length": String(body.length) },
    });
    const cancel = alarm(timeout, () => {
      fail(504, `no response within ${timeout / 1000} s`);
      outgoing.destroy();
    });
    outgoing.once("close", cancel);
    // Without a connection, no byte was sent.
    let wasSent = false;
    const send = (): void => void (wasSent = true);
    outgoing.once("close", send);
    outgoing.once("socket", (socket) => (socket.connecting ? void socket.once("connect", send) : send()));
    withdraw = () => {
      if (wasSent) return false;
      resolve(null);
      outgoing.destroy();
      return true;
    };
    outgoing.once("error", (error) => {
      if (signal.aborted) return reject(signal.reason as Error);
      fail(502, `${to.origin}: ${(error as NodeJS.ErrnoException).code ?? error.message}`);
    });
    outgoing.once("response", (response) => {
      const status = response.statusCode ?? 0;
      if (status < 200 || status > 599) {
        fail(502, `the status ${status} is not one of HTTP`);
        return void outgoing.destroy();
      }
      readBody(response).then(
        (received) => resolve({ ...received, status }),
        (error: unknown) => fail(502, `the response broke off: ${String(error)}`),
      );
    });
    outgoing.end(body);
  });
  return { response, withdraw: () => withdraw() };
}

/** Reads a response. The rest of one that is longer than a message is dropped. */
async function readBody(
  response: IncomingMessage,
): Promise<Pick<LocalResponse, "headers" | "body" | "cutAfter">> {
  const chunks: Buffer[] = [];
  let size = 0;
  for await (const chunk of response as AsyncIterable<Buffer>) {
    if (size < limits.messageBytes) chunks.push(chunk);
    size += chunk.length;
  }
  const headers: Record<string, string[]> = {};
  for (const [name, values] of Object.entries(response.headersDistinct))
    if (!connectionHeaders.has(name) && values) headers[name] = values;
  const cutAfter = limits.messageBytes;
  return {
    ...{ headers, body: Buffer.concat(chunks).subarray(0, cutAfter) },
    ...(size > cutAfter && { cutAfter }),
  };
}
