import { once } from "node:events";
import type { Agent, ClientRequest, IncomingMessage, RequestOptions } from "node:http";
import { request as requestHttp } from "node:http";
import { alarm } from "../engine/clock/clock.ts";
import { minute, second } from "../engine/core/values/time.ts";
import { findUntrustedCertificate } from "../engine/core/values/untrustedCertificate.ts";
import type { NeededFields } from "./responseFields.ts";
import { findMissing } from "./responseFields.ts";
import { CommandFailed } from "./terminal/commandFailed.ts";
import { isObject, readLine } from "./terminal/fields.ts";
import { toSafeLine } from "./terminal/safeText.ts";
import { note } from "./terminal/terminal.ts";

/** Where the server is, and the token that requests are sent with. */
export type ServerAddress = { url: string; token: string };

/** The parameters of a query. A list is sent as repeated parameters. */
export type ApiQuery = Readonly<Record<string, string | number | readonly (string | number)[] | undefined>>;

/**
 * A request to the API. `path` begins with `/v2/` and is already encoded. A response without the fields that
 * are needed is an error.
 */
export type ApiRequest = {
  method?: "GET" | "POST" | "PUT" | "PATCH" | "DELETE";
  path: string;
  query?: ApiQuery;
  headers?: Readonly<Record<string, string | readonly string[]>>;
  body?: Buffer | string;
  needs: NeededFields;
  /** Keeps connections for later requests. Default: each request has its own. */
  agent?: Agent;
  /** Ends the request, unless its response has begun. */
  signal?: AbortSignal;
};

/** How long a server may be silent, and how long a request and its response may take in all. */
const responseTime = { silent: 30 * second, whole: 5 * minute };
/** The largest response that is read, in bytes. */
const maxResponse = 256 * 1024 * 1024;
/** The longest line of a stream that is read, in characters. A server sends no line of more than 1 MiB. */
const maxLine = 2 * 1024 * 1024;

/**
 * Sends a request and returns the JSON of its response. Fails with one sentence if the server refuses it or
 * does not respond. Redirects are not followed, because the token is for this server only.
 */
export async function callApi(
  server: ServerAddress,
  request: ApiRequest,
  time: typeof responseTime = responseTime,
): Promise<unknown> {
  const { status, body, warning } = await send(server, request, time).catch((error: unknown) => {
    throw error instanceof CommandFailed ? error : toUnreachable(server.url, error);
  });
  noteWarning(warning);
  const result = parseJson(body);
  if (status >= 200 && status < 300 && result !== undefined) {
    const missing = findMissing(result, request.needs);
    if (missing === null) return result;
    throw toStranger(server.url, missing);
  }
  throw toFailure(server.url, status, result);
}

let lastWarning = "";

/** Prints what a response warns of, once for all requests that have the same warning in turn. */
function noteWarning(warning: string): void {
  if (warning !== "" && warning !== lastWarning) note(`waypost: warning: ${toSafeLine(warning)}`);
  lastWarning = warning || lastWarning;
}

/**
 * Sends a request and yields the lines of its response as they arrive. A last line without a line break is
 * left out. Fails if the server refuses the request, or if no line is complete after `silent` milliseconds.
 */
export async function* readLines(
  server: ServerAddress,
  request: Pick<ApiRequest, "path" | "query">,
  silent = responseTime.silent,
): AsyncGenerator<string, void> {
  let outgoing: ClientRequest | null = null;
  let cancel = (): void => undefined;
  try {
    const opened = startRequest(server, { ...request, needs: {} }, { open: await loadProtocol(server.url) });
    outgoing = opened;
    let stop = (error: Error): unknown => opened.destroy(error);
    const restart = (): void => {
      cancel();
      cancel = alarm(silent, () => stop(new Error(`no line within ${silent / 1000} s`)));
    };
    restart();
    const [response] = (await once(opened, "response")) as [IncomingMessage];
    opened.on("error", () => undefined);
    stop = (error) => response.destroy(error);
    if (response.statusCode !== 200) {
      const { status, body } = await readResponse(response);
      throw toFailure(server.url, status, parseJson(body));
    }
    response.setEncoding("utf8");
    let rest = "";
    for await (const chunk of response as AsyncIterable<string>) {
      const lines = chunk.split("\n");
      lines[0] = rest + (lines[0] ?? "");
      rest = lines.pop() ?? "";
      for (const line of lines) {
        // The time in which the caller handles a line is not a silence of the server.
        cancel();
        yield line;
        restart();
      }
      if (rest.length > maxLine) throw toStranger(server.url, `a line exceeds ${maxLine} characters`);
    }
  } catch (error) {
    throw error instanceof CommandFailed ? error : toUnreachable(server.url, error);
  } finally {
    cancel();
    outgoing?.destroy();
  }
}

/** Returns the failure that something else than Waypost responds. */
export const toStranger = (url: string, why: string): CommandFailed =>
  new CommandFailed(
    "failed",
    `${url}: this is not a response of Waypost, because ${why}; ` +
      "check the address, and any proxy in between",
  );

function formatQuery(query: ApiQuery): string {
  const parameters = new URLSearchParams();
  for (const [name, value] of Object.entries(query))
    for (const one of Array.isArray(value) ? value : [value])
      if (one !== undefined) parameters.append(name, String(one));
  const text = parameters.toString();
  return text === "" ? "" : `?${text}`;
}

/** `warning` is the header `Waypost-Warning`, or empty. */
type Received = { status: number; body: string; warning: string };

async function send(
  server: ServerAddress,
  request: ApiRequest,
  time: typeof responseTime,
): Promise<Received> {
  const open = await loadProtocol(server.url);
  return new Promise((resolve, reject) => {
    const outgoing = startRequest(server, request, { open, timeout: time.silent });
    const end = (): void => void outgoing.destroy();
    const keep = (): void => request.signal?.removeEventListener("abort", end);
    request.signal?.addEventListener("abort", end);
    if (request.signal?.aborted) end();
    outgoing.on("response", (response) => {
      keep();
      readResponse(response).then(resolve, reject);
    });
    const giveUp = (span: number, missing: string): void => {
      reject(new Error(`no ${missing} within ${span / 1000} s`));
      outgoing.destroy();
    };
    outgoing.on("timeout", () => giveUp(time.silent, "response"));
    // A server that sends a byte now and then is never silent.
    const cancel = alarm(time.whole, () => giveUp(time.whole, "complete response"));
    outgoing.on("close", cancel).on("close", keep);
    outgoing.on("error", reject);
  });
}

/** Returns what opens requests to a URL. TLS is loaded only if it is used. */
const loadProtocol = async (url: string): Promise<typeof requestHttp> =>
  url.startsWith("https:") ? (await import("node:https")).request : requestHttp;

type Opening = { open: typeof requestHttp; timeout?: number };

/** Sends a request. It emits `timeout` if its socket is idle for `timeout` milliseconds. */
function startRequest(server: ServerAddress, request: ApiRequest, { open, timeout }: Opening): ClientRequest {
  const { body } = request;
  const options: RequestOptions = {
    method: request.method ?? "GET",
    headers: {
      ...request.headers,
      authorization: `Bearer ${server.token}`,
      ...(body !== undefined && { "content-length": String(Buffer.byteLength(body)) }),
    },
    timeout,
    agent: request.agent ?? false,
  };
  const address = `${server.url}${request.path}${formatQuery(request.query ?? {})}`;
  // The URL is not parsed: a destination in the path must arrive as it was written.
  const { protocol, hostname, port, origin } = new URL(server.url);
  const host = hostname.replace(/^\[(.*)\]$/, "$1");
  return open({ ...options, protocol, host, port, path: address.slice(origin.length) }).end(body);
}

async function readResponse(response: IncomingMessage): Promise<Received> {
  const chunks: Buffer[] = [];
  let size = 0;
  for await (const chunk of response as AsyncIterable<Buffer>) {
    size += chunk.length;
    if (size > maxResponse)
      throw new CommandFailed(
        "unavailable",
        `the response exceeds ${maxResponse} bytes; ask for fewer entries`,
      );
    chunks.push(chunk);
  }
  const warning = String(response.headers["waypost-warning"] ?? "");
  return { status: response.statusCode ?? 0, body: Buffer.concat(chunks).toString(), warning };
}

/** Returns the JSON of a body, null for an empty body, or undefined for any other text. */
function parseJson(body: string): unknown {
  if (body === "") return null;
  try {
    return JSON.parse(body) as unknown;
  } catch {
    return undefined;
  }
}

const causes: Readonly<Record<string, string>> = {
  ECONNREFUSED: "connection refused",
  ENOTFOUND: "its host is unknown",
  EAI_AGAIN: "its host cannot be looked up",
  ETIMEDOUT: "no response",
  ECONNRESET: "the connection was closed",
  EPROTO: "it does not speak TLS; use http:// instead of https://",
};

function toUnreachable(url: string, error: unknown): CommandFailed {
  const code = String(Reflect.get(Object(error), "code") ?? "");
  const message = error instanceof Error ? error.message : String(error);
  if (code === "ERR_UNESCAPED_CHARACTERS" || code === "ERR_INVALID_CHAR")
    return new CommandFailed("usage", `the request has characters that HTTP forbids: ${toSafeLine(message)}`);
  const untrusted = findUntrustedCertificate(error);
  if (untrusted)
    return new CommandFailed("unavailable", `${url}: ${toSafeLine(untrusted.problem)}; ${untrusted.fix}`);
  const cause = causes[code] ?? toSafeLine(message || code);
  return new CommandFailed(
    "unavailable",
    `${url}: the server cannot be reached (${cause}); check the address, and that the server runs`,
  );
}

/** Returns the failure that a response means. `result` is its JSON, or undefined if it has none. */
function toFailure(url: string, status: number, result: unknown): CommandFailed {
  const body = isObject(result) ? result : {};
  const said = readLine(body, "error") || readLine(body, "message");
  if (status === 401)
    return new CommandFailed(
      "forbidden",
      `${url}: the token was not accepted; "waypost login ${url}" stores another one`,
    );
  if (said === "" && (status === 502 || status === 503 || status === 504))
    return new CommandFailed(
      "unavailable",
      `${url}: the server is unavailable (status ${status}); try again later`,
    );
  if (said === "")
    return new CommandFailed(
      "failed",
      `${url}: status ${status} without a response of Waypost; is this the address of the server?`,
      status >= 500,
    );
  if (status === 403) return new CommandFailed("forbidden", said);
  if (status === 404) return new CommandFailed("notFound", said);
  return new CommandFailed(status === 429 || status >= 502 ? "unavailable" : "failed", said, status >= 500);
}
