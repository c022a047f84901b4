import { randomUUID } from "node:crypto";
import { once } from "node:events";
import { createServer } from "node:http";
import type { IncomingMessage, ServerResponse } from "node:http";
import { Client, serve } from "@upstash/workflow";
import type { RouteFunction, WorkflowRunLog, WorkflowServeOptions } from "@upstash/workflow";
import { createWorkflow, serveMany } from "@upstash/workflow/cloudflare";
import { afterAll, beforeAll, vi } from "vitest";
import type { TestUser } from "./clientTestServer.ts";
import { eventually, startClientTestServer } from "./clientTestServer.ts";

/** A request that arrived at a URL, and its response. `answer` is empty until there is a response. */
export type Call = {
  method: string;
  path: string;
  headers: Readonly<Record<string, string>>;
  body: string;
  status: number | null;
  answer: string;
  at: number;
};

type Handler = (request: Request) => Promise<Response> | Response;

/** A URL on loopback, and the requests that have arrived there. */
export type RecordedUrl = { url: string; calls: Call[] };

/** Each workflow declares the type of its payload itself. */
type AnyRoute = RouteFunction<never>;
type Options = Omit<WorkflowServeOptions, "env" | "url" | "schema" | "initialPayloadParser">;

/** A user with a new account who writes workflows. The unmodified package serves them. */
export type WorkflowUser = TestUser & {
  workflows: Client;
  /** Serves a workflow at its own URL. Every request is verified with the keys of the account. */
  serve(route: AnyRoute, options?: Options): RecordedUrl;
  /** Serves workflows that can call each other. */
  serveMany<Name extends string>(
    make: (name: WorkflowsByName) => Record<Name, AnyRoute>,
    options?: Options,
  ): Record<Name, RecordedUrl>;
  /** Serves any other handler. */
  answer(handler: Handler): RecordedUrl;
  /** Serves a handler at a path chosen by the test. */
  at(path: string, handler: Handler): RecordedUrl;
};

type Invokable = ReturnType<typeof createWorkflow>;
/** Returns a workflow by its name, for workflows that invoke it. It works only while one of them runs. */
type WorkflowsByName = (name: string) => Invokable;

type Store = "SQLite" | "PostgreSQL";

/** A server for the published workflow client. */
export type WorkflowTestServer = { url: string; createUser(): WorkflowUser; close(): Promise<void> };

/**
 * Starts the whole server, and a server for the workflows of all users. Close it when it is no longer needed.
 */
export async function startWorkflowTestServer(
  store: Store = "SQLite",
  environment: Record<string, string> = {},
): Promise<WorkflowTestServer> {
  const [testServer, app] = await Promise.all([startClientTestServer(store, {}, environment), startApp()]);
  return {
    url: testServer.url,
    createUser: () => createWorkflowUser(testServer.createUser(), app),
    close: async () => {
      await testServer.close();
      app.close();
    },
  };
}

/**
 * Starts a server for the tests of a file or a suite, and closes it after them. Meanwhile the console is
 * silent, because the packages write every failure there.
 */
export function shareWorkflowServer(
  ...given: [store?: Store, environment?: Record<string, string>]
): Pick<WorkflowTestServer, "url" | "createUser"> {
  let server: WorkflowTestServer;
  beforeAll(async () => {
    for (const level of ["error", "warn"] as const) vi.spyOn(console, level).mockReturnValue(undefined);
    server = await startWorkflowTestServer(...given);
  });
  afterAll(async () => {
    vi.restoreAllMocks();
    await server.close();
  });
  return {
    get url() {
      return server.url;
    },
    createUser: () => server.createUser(),
  };
}

type App = Awaited<ReturnType<typeof startApp>>;

function createWorkflowUser(user: TestUser, app: App): WorkflowUser {
  const given = (options: Options = {}) => ({
    qstashClient: user.client,
    receiver: user.receiver,
    env: {},
    ...options,
  });
  return {
    ...user,
    workflows: new Client({ baseUrl: user.url, token: user.token }),
    serve: (route, options) =>
      app.at(`/${randomUUID()}`, serve(route as RouteFunction<unknown>, given(options)).handler),
    serveMany: (make, options) => {
      const folder = `/${randomUUID()}`;
      const workflows: Record<string, Invokable> = {};
      const byName: WorkflowsByName = (name) => workflows[name] ?? fail(`no workflow ${name}`);
      const routes: Record<string, AnyRoute> = make(byName);
      for (const [name, route] of Object.entries(routes))
        workflows[name] = createWorkflow(route as RouteFunction<unknown>, { ...options });
      const { fetch } = serveMany(workflows, given());
      const places = Object.keys(routes).map(
        (name) => [name, app.at(`${folder}/${name}`, (request) => fetch(request, {}))] as const,
      );
      return Object.fromEntries(places) as Record<keyof ReturnType<typeof make>, RecordedUrl>;
    },
    answer: (handler) => app.at(`/${randomUUID()}`, handler),
    at: app.at,
  };
}

const fail = (problem: string): never => {
  throw new Error(problem);
};

/** Starts a server on loopback whose URLs are created as tests need them. */
async function startApp() {
  const places = new Map<string, { place: RecordedUrl; handler: Handler }>();
  const server = createServer(async (incoming, outgoing) => {
    const path = incoming.url ?? "";
    const found = places.get(path.split("?")[0] ?? "");
    if (!found) return void outgoing.writeHead(404).end();
    await respond(incoming, outgoing, found);
  });
  server.listen(0, "127.0.0.1");
  await once(server, "listening");
  const address = server.address();
  const origin = `http://127.0.0.1:${address && typeof address === "object" ? address.port : 0}`;
  return {
    at: (path: string, handler: Handler): RecordedUrl => {
      const place = { url: origin + path, calls: [] };
      places.set(path, { place, handler });
      return place;
    },
    close: (): void => {
      server.closeAllConnections();
      server.close();
    },
  };
}

type UrlHandler = { place: RecordedUrl; handler: Handler };

async function respond(
  incoming: IncomingMessage,
  outgoing: ServerResponse,
  { place, handler }: UrlHandler,
): Promise<void> {
  const path = incoming.url ?? "";
  const method = incoming.method ?? "";
  const headers = Object.entries(incoming.headersDistinct).flatMap(([name, values]) =>
    (values ?? []).map((value): [string, string] => [name, value]),
  );
  const call: Call = {
    path,
    method,
    headers: Object.fromEntries(headers),
    body: "",
    status: null,
    answer: "",
    at: Date.now(),
  };
  place.calls.push(call);
  const chunks: Buffer[] = [];
  for await (const chunk of incoming) chunks.push(chunk as Buffer);
  const body = Buffer.concat(chunks);
  call.body = body.toString();
  const url = new URL(path, place.url).href;
  const hasBody = method !== "GET" && method !== "HEAD";
  const response = await handler(new Request(url, { method, headers, ...(hasBody ? { body } : {}) }));
  const answer = Buffer.from(await response.arrayBuffer());
  Object.assign(call, { status: response.status, answer: answer.toString() });
  if (!outgoing.destroyed)
    outgoing.writeHead(response.status, Object.fromEntries(response.headers)).end(answer);
}

/** Returns the run with this id from the log once it has ended. If there are several, returns the newest. */
export async function waitForEnd(
  { workflows }: Pick<WorkflowUser, "workflows">,
  { workflowRunId }: { workflowRunId: string },
): Promise<WorkflowRunLog> {
  const { runs } = await eventually(
    () => workflows.logs({ filter: { workflowRunId } }),
    ({ runs: [run] }) => run !== undefined && run.workflowState !== "RUN_STARTED",
  );
  return runs[0] ?? fail("no run");
}

/** Returns the result of the run with this id once it has succeeded. */
export async function waitForResult(
  user: Pick<WorkflowUser, "workflows">,
  run: { workflowRunId: string },
): Promise<unknown> {
  const { workflowState, workflowRunResponse, ...rest } = await waitForEnd(user, run);
  if (workflowState !== "RUN_SUCCESS") throw new Error(`${workflowState}: ${JSON.stringify(rest, null, 1)}`);
  return workflowRunResponse === undefined ? undefined : JSON.parse(workflowRunResponse);
}

/**
 * Waits until at least this many requests have been answered. Returns their number a moment later, when an
 * excess request would have arrived.
 */
export async function waitForCount({ calls }: RecordedUrl, atLeast: number): Promise<number> {
  const answered = () =>
    eventually(
      async () => calls,
      () => calls.length >= atLeast && calls.every(({ status }) => status !== null),
    );
  await answered();
  await new Promise((resolve) => setTimeout(resolve, 50));
  return (await answered()).length;
}

/** Returns the only dead letter of a run, once it exists. */
export async function findDeadLetter(
  { workflows }: Pick<WorkflowUser, "workflows">,
  { workflowRunId }: { workflowRunId: string },
) {
  const { messages } = await eventually(
    () => workflows.dlq.list({ filter: { workflowRunId } }),
    ({ messages: { length } }) => length > 0,
  );
  const [input, ...others] = messages;
  if (!input || others.length > 0) throw new Error(`${messages.length} dead letters of ${workflowRunId}`);
  return input;
}

// oxlint-disable-next-line typescript/no-explicit-any -- the shape is what is tested
type Reply = { status: number; body: any };

/** Calls the server without a client. `request` has the method and the path behind /v2/. */
export async function ask(
  user: Pick<TestUser, "url" | "token">,
  request: string,
  more: RequestInit = {},
): Promise<Reply> {
  const [method = "", path = ""] = request.split(" ");
  const headers = { authorization: `Bearer ${user.token}`, ...(more.headers as Record<string, string>) };
  const response = await fetch(`${user.url}/v2/${path}`, { ...more, method, headers });
  const text = await response.text();
  return {
    status: response.status,
    body: text.startsWith("{") || text.startsWith("[") ? JSON.parse(text) : text,
  };
}

/** Returns a promise and the functions that settle it. */
export const createGate = () => Promise.withResolvers<void>();
