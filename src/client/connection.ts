import type { IncomingMessage, RequestOptions } from "node:http";
import { request as requestHttp } from "node:http";
import { CommandFailed } from "./terminal/commandFailed.ts";
import { isObject, readLine } from "./terminal/fields.ts";
import { toSafeLine } from "./terminal/safeText.ts";

/** Where the server is, and the token that requests are sent with. */
export type ServerAddress = { url: string; token: string };

/** The parameters of a query. A list is sent as repeated parameters. */
export type ApiQuery = Readonly<Record<string, string | number | readonly (string | number)[] | undefined>>;

/** A request to the API. `path` begins with `/v2/` and is already encoded. */
export type ApiRequest = {
  method?: "GET" | "POST" | "PUT" | "DELETE";
  path: string;
  query?: ApiQuery;
  headers?: Readonly<Record<string, string>>;
  body?: Buffer | string;
};

/** How long a server may be silent, in milliseconds. */
const timeout = 30_000;
/** The largest response that is read, in bytes. */
const maxResponse = 256 * 1024 * 1024;

/**
 * Sends a request and returns the JSON of its response. Fails with one sentence if the server refuses it or
 * does not respond. Redirects are not followed, because the token is for this server only.
 */
export async function callApi(server: ServerAddress, request: ApiRequest): Promise<unknown> {
  const address = `${server.url}${request.path}${formatQuery(request.query ?? {})}`;
  const { status, body } = await send(server, request, address).catch((error: unknown) => {
    throw error instanceof CommandFailed ? error : toUnreachable(server.url, error);
  });
  const result = parseJson(body);
  if (status >= 200 && status < 300 && result !== undefined) return result;
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

async function send(server: ServerAddress, request: ApiRequest, address: string): Promise<Received> {
  const { body } = request;
  const options: RequestOptions = {
    method: request.method ?? "GET",
    headers: {
      ...request.headers,
      authorization: `Bearer ${server.token}`,
      ...(body !== undefined && { "content-length": String(Buffer.byteLength(body)) }),
    },
    timeout,
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
    outgoing.on("timeout", () =>
      outgoing.destroy(Object.assign(new Error("no response"), { code: "ETIMEDOUT" })),
    );
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
      throw new CommandFailed("failed", `the response exceeds ${maxResponse} bytes; ask for fewer entries`);
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
  ETIMEDOUT: `no response within ${timeout / 1000} s`,
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
