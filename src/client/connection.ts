import type { IncomingMessage, RequestOptions } from "node:http";
import { request as requestHttp } from "node:http";
import { alarm } from "../clock/clock.ts";
import { minute, second } from "../core/values/time.ts";
import type { NeededFields } from "./responseFields.ts";
import { findMissing } from "./responseFields.ts";
import { CommandFailed } from "./terminal/commandFailed.ts";
import { isObject, readLine } from "./terminal/fields.ts";
import { toSafeLine } from "./terminal/safeText.ts";

/** Where the server is, and the token that requests are sent with. */
export type ServerAddress = { url: string; token: string };

/** The parameters of a query. A list is sent as repeated parameters. */
export type ApiQuery = Readonly<Record<string, string | number | readonly (string | number)[] | undefined>>;

/**
 * A request to the API. `path` begins with `/v2/` and is already encoded. A response without the fields that
 * are needed is an error.
 */
export type ApiRequest = {
  method?: "GET" | "POST" | "PUT" | "DELETE";
  path: string;
  query?: ApiQuery;
  headers?: Readonly<Record<string, string | readonly string[]>>;
  body?: Buffer | string;
  needs: NeededFields;
};

/** How long a server may be silent, and how long a request and its response may take in all. */
const responseTime = { silent: 30 * second, whole: 5 * minute };
/** The largest response that is read, in bytes. */
const maxResponse = 256 * 1024 * 1024;

/**
 * Sends a request and returns the JSON of its response. Fails with one sentence if the server refuses it or
 * does not respond. Redirects are not followed, because the token is for this server only.
 */
export async function callApi(
  server: ServerAddress,
  request: ApiRequest,
  time: typeof responseTime = responseTime,
): Promise<unknown> {
  const address = `${server.url}${request.path}${formatQuery(request.query ?? {})}`;
  const { status, body } = await send(server, request, { address, time }).catch((error: unknown) => {
    throw error instanceof CommandFailed ? error : toUnreachable(server.url, error);
  });
  const result = parseJson(body);
  if (status >= 200 && status < 300 && result !== undefined) {
    const missing = findMissing(result, request.needs);
    if (missing === null) return result;
    throw new CommandFailed(
      "failed",
      `${server.url}: this is not a response of Waypost, because ${missing}; ` +
        "check the address, and any proxy in between",
    );
  }
  throw toFailure(server.url, status, result);
}

function formatQuery(query: ApiQuery): string {
  const parameters = new URLSearchParams();
  for (const [name, value] of Object.entries(query))
    for (const one of Array.isArray(value) ? value : [value])
      if (one !== undefined) parameters.append(name, String(one));
  const text = parameters.toString();
  return text === "" ? "" : `?${text}`;
}

type Received = { status: number; body: string };

type Exchange = { address: string; time: typeof responseTime };

async function send(
  server: ServerAddress,
  request: ApiRequest,
  { address, time }: Exchange,
): Promise<Received> {
  const { body } = request;
  const options: RequestOptions = {
    method: request.method ?? "GET",
    headers: {
      ...request.headers,
      authorization: `Bearer ${server.token}`,
      ...(body !== undefined && { "content-length": String(Buffer.byteLength(body)) }),
    },
    timeout: time.silent,
    agent: false,
  };
  // TLS is loaded only if it is used.
  const open = address.startsWith("https:") ? (await import("node:https")).request : requestHttp;
  // The URL is not parsed: a destination in the path must arrive as it was written.
  const { protocol, hostname, port } = new URL(server.url);
  const path = address.slice(new URL(server.url).origin.length);
  const host = hostname.replace(/^\[(.*)\]$/, "$1");
  return new Promise((resolve, reject) => {
    const outgoing = open({ ...options, protocol, host, port, path }, (response) => {
      readResponse(response).then(resolve, reject);
    });
    const giveUp = (span: number, missing: string): void => {
      reject(new Error(`no ${missing} within ${span / 1000} s`));
      outgoing.destroy();
    };
    outgoing.on("timeout", () => giveUp(time.silent, "response"));
    // A server that sends a byte now and then is never silent.
    const cancel = alarm(time.whole, () => giveUp(time.whole, "complete response"));
    outgoing.on("close", cancel);
    outgoing.on("error", reject);
    outgoing.end(body);
  });
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
  return { status: response.statusCode ?? 0, body: Buffer.concat(chunks).toString() };
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
  if (/CERT|SIGNED|ISSUER|ALTNAME/.test(code))
    return new CommandFailed(
      "unavailable",
      `${url}: its certificate is not trusted (${toSafeLine(code)}); ` +
        "name its authority in NODE_EXTRA_CA_CERTS",
    );
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
    );
  if (status === 403) return new CommandFailed("forbidden", said);
  if (status === 404) return new CommandFailed("notFound", said);
  return new CommandFailed(status === 429 || status >= 502 ? "unavailable" : "failed", said);
}
