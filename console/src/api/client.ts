import type { Routes } from "./schema.ts";

/** Where the console is served, with a slash at the end: below any prefix of a reverse proxy. */
export const consoleBase = new URL("../", import.meta.env.DEV ? location.href : import.meta.url);

/** Where the API is: beside the console. */
export const apiBase = new URL("../", consoleBase);

/** A refusal of the server, or no response. `status` is 0 if the server did not respond. */
export class Trouble extends Error {
  readonly status: number;
  constructor(status: number, message: string) {
    super(message);
    this.status = status;
  }
}

/** The name of a route, such as `GET /v2/queues`. */
export type RouteName = keyof Routes;
/** The response of a route. */
export type Response<R extends RouteName> = Routes[R]["response"];

/** The parts of a request beside its route: parameters of the path and of the query, and a body. */
export type Sent<R extends RouteName> = {
  params?: Readonly<Record<string, string>>;
  query?: Routes[R]["query"];
  body?: unknown;
  headers?: Readonly<Record<string, string>>;
  signal?: AbortSignal;
};

/** Returns the path and the query of a request, for the request itself and for code to copy. */
export function toPath(
  route: string,
  { params = {}, query = {} }: Pick<Sent<RouteName>, "params" | "query">,
): string {
  const path = route
    .slice(route.indexOf(" ") + 1)
    .replaceAll(/\{(\w+)\}/g, (_, name: string) =>
      name === "destination" ? (params[name] ?? "") : encodeURIComponent(params[name] ?? ""),
    );
  const search = new URLSearchParams();
  for (const [name, value] of Object.entries(
    query as Record<string, string | number | boolean | readonly string[] | undefined>,
  )) {
    if (typeof value === "object") for (const one of value) search.append(name, one);
    else if (value !== undefined && value !== "") search.append(name, String(value));
  }
  return search.size === 0 ? path : `${path}?${search}`;
}

/** Sends a request. Throws `Trouble` if it is refused or not answered. */
export async function send<R extends RouteName>(route: R, sent: Sent<R> = {}): Promise<Response<R>> {
  return (await request(route.slice(0, route.indexOf(" ")), toPath(route, sent), sent)) as Response<R>;
}

type Given = { body?: unknown; headers?: Readonly<Record<string, string>>; signal?: AbortSignal };

/** Sends a request to a path beside the console and returns the JSON of the answer. */
export async function request(method: string, path: string, given: Given = {}): Promise<unknown> {
  const response = await fetchFrom(method, path, given);
  const text = await response.text();
  const body = parse(text);
  if (response.ok) return body;
  throw refuse(response.status, path, body);
}

/** Returns the error for a refusal. Shows the login if the session has ended. */
function refuse(status: number, path: string, body: unknown): Trouble {
  if (status === 401 && !path.startsWith("/console/")) onSessionEnd();
  return new Trouble(status, readError(body) ?? `the server answered ${status}`);
}

/** How long a line of a stream may be. A longer line is an error. */
const maxLineLength = 4 * 1024 * 1024;

/**
 * Sends a request whose response is a stream of lines of JSON, and passes the lines on as they come. Returns
 * when the stream ends. Throws `Trouble` if the request is refused or the connection is lost.
 */
export async function follow<R extends RouteName>(
  route: R,
  sent: Sent<R>,
  take: (line: Response<R>) => void,
): Promise<void> {
  const path = toPath(route, sent);
  const response = await fetchFrom(route.slice(0, route.indexOf(" ")), path, sent);
  if (!response.ok || !response.body) throw refuse(response.status, path, parse(await response.text()));
  const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "";
  for (;;) {
    const { done, value } = await readPiece(reader, sent.signal);
    if (done) return;
    const lines = (rest + value).split("\n");
    rest = lines.pop() ?? "";
    if (rest.length > maxLineLength) throw new Trouble(0, "the server sent a line that is too long");
    for (const line of lines) if (line !== "") take(JSON.parse(line) as Response<R>);
  }
}

async function readPiece(reader: ReadableStreamDefaultReader<string>, signal: AbortSignal | undefined) {
  try {
    return await reader.read();
  } catch (error) {
    if (signal?.aborted) throw error;
    throw new Trouble(0, "the connection was lost");
  }
}

/** Sends a request and returns the response as it comes. Throws `Trouble` if the server does not answer. */
async function fetchFrom(
  method: string,
  path: string,
  { body, headers, signal }: Given,
): Promise<globalThis.Response> {
  const init: RequestInit = {
    method,
    headers: {
      "Waypost-Console": "1",
      ...(body !== undefined && { "Content-Type": "application/json" }),
      ...headers,
    },
    credentials: "same-origin",
    cache: "no-cache",
    ...(body !== undefined && { body: typeof body === "string" ? body : JSON.stringify(body) }),
    ...(signal && { signal }),
  };
  try {
    return await fetch(new URL(path.slice(1), apiBase), init);
  } catch (error) {
    if (signal?.aborted) throw error;
    throw new Trouble(0, "the server does not respond");
  }
}

function parse(text: string): unknown {
  try {
    return text === "" ? null : JSON.parse(text);
  } catch {
    return text;
  }
}

function readError(body: unknown): string | null {
  if (typeof body !== "object" || body === null) return null;
  const error: unknown = Reflect.get(body, "error") ?? Reflect.get(body, "message");
  return typeof error === "string" ? error : null;
}

let onSessionEnd: () => void = () => undefined;

/** Sets what happens when the server no longer accepts the session. */
export const whenSessionEnds = (act: () => void): void => void (onSessionEnd = act);
