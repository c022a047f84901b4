import type { Route } from "../../../../src/api/route/route.ts";
import { makeAttemptToken } from "../../../../src/engine/delivery/attemptToken.ts";
import { hashToken } from "../../../../src/api/auth/token.ts";
import { makeToken } from "../../../../src/engine/core/values/tokenText.ts";
import { callbackTo, takeDelivery, failRunAndRead, start } from "../lists/failedRunLists.ts";
import type { TestServer, Reply } from "../../testServer.ts";
import { operatorPassword } from "../../testServer.ts";

/** An account with one object of each kind that an account can have. */
export type Possessions = {
  account: string;
  token: string;
  password: string;
  /** The destination of its messages. */
  url: string;
  ids: Readonly<Record<Kind, string>>;
};

const kinds = [
  "messageId",
  "sentMessage",
  "attempt",
  "outbox",
  "origin",
  "host",
  "dlqId",
  "failedRun",
  "failedCallback",
  "openCallback",
  "runId",
  "eventId",
  "queue",
  "key",
  "group",
  "scheduleId",
  "sourceId",
  "secret",
  "tokenId",
  "jobId",
] as const;
/** The kinds of objects that paths can name. */
export type Kind = (typeof kinds)[number];

/** Returns an Authorization header with user name and password. */
export const formatBasic = (user: string, password: string): string =>
  `Basic ${Buffer.from(`${user}:${password}`).toString("base64")}`;

/** Creates an account. All its content, apart from names and ids, contains the mark. */
export async function createPossessions(
  testServer: TestServer,
  account: string,
  mark: string,
): Promise<Possessions> {
  const password = `password-${mark}`;
  const token = makeToken(account, password);
  const signingKeys = { current: `sig_1${mark}`, next: `sig_2${mark}` };
  await testServer.store.execute("createAccount", {
    id: account,
    name: account,
    password,
    token,
    tokenHash: hashToken(token),
    signingKeys,
  });
  const url = `https://${mark}.example/x`;
  const ask = async (
    method: string,
    path: string,
    more: { headers?: Record<string, string>; body?: string } = {},
  ) => {
    const reply = await testServer.ask(method, path, { token, ...more });
    if (reply.status > 299)
      throw new Error(`${method} ${path}: ${reply.status} ${JSON.stringify(reply.body)}`);
    return reply.body;
  };
  const queue = `queue-${account}`;
  const key = `key-${account}`;
  const group = `group-${account}`;
  const held = { "svc-delay": "1d", "svc-label": mark, "svc-forward-x": mark };
  const { messageId } = await ask("POST", `/v2/publish/${url}`, {
    body: mark,
    headers: { ...held, "svc-flow-control-key": key, "svc-flow-control-value": "parallelism=1" },
  });
  await ask("POST", "/v2/queues", { body: JSON.stringify({ queueName: queue, parallelism: 7 }) });
  await ask("POST", `/v2/enqueue/${queue}/${url}`, { body: mark, headers: held });
  await ask("POST", `/v2/topics/${group}/endpoints`, {
    body: JSON.stringify({ endpoints: [{ name: mark, url }] }),
  });
  const { scheduleId } = await ask("POST", `/v2/schedules/${url}`, {
    body: mark,
    headers: { "svc-cron": "0 0 1 1 *", "svc-forward-x": mark },
  });
  const source = await ask("POST", "/v2/sources", { body: JSON.stringify({ name: mark, destination: url }) });
  const { tokenId } = await ask("POST", "/v2/tokens", {
    body: JSON.stringify({ name: mark, verbs: ["read"] }),
  });
  await ask("PUT", "/v2/alerts", { body: JSON.stringify({ url: `https://${mark}.example` }) });
  const { jobId } = await ask("POST", "/v2/jobs", {
    body: JSON.stringify({ action: "dlq.delete", filter: { label: mark } }),
  });
  const outbox = `outbox-${account}`;
  await ask("PUT", `/v2/outboxes/${outbox}`, { body: JSON.stringify(makeOutbox({ url, token })) });
  const origin = `https://pulled-${account}.example`.replaceAll("_", "-");
  await ask("PUT", "/v2/pulled", { body: JSON.stringify({ origin }) });
  const made = { outbox, origin, messageId, queue, key, group, scheduleId, tokenId, jobId };
  const ids = { ...made, sourceId: source.sourceId, secret: String(source.url).split("/").at(-1) ?? "" };
  return {
    account,
    token,
    password,
    url,
    ids: {
      ...ids,
      dlqId: await createDeadLetter(testServer, { account, token, url, mark }),
      ...(await createRuns(testServer, { account, token, url, ask })),
      ...(await createSentMessage(testServer, { account, ask, mark })),
      attempt: await createHeldAttempt(testServer, { account, url, ask, mark }),
    },
  };
}

/** Creates a message that is being sent, the only one to its host. */
async function createSentMessage(
  { deliveries }: TestServer,
  { account, ask, mark }: Pick<AccountClient, "account" | "ask"> & { mark: string },
): Promise<{ host: string; sentMessage: string }> {
  const host = `host-${account}.example`.replaceAll("_", "-");
  const { messageId } = await ask("POST", `/v2/publish/https://${host}/x`, { body: mark });
  deliveries.splice(0);
  return { host, sentMessage: messageId };
}

/** Creates a message that its receiver holds, and returns the token of its attempt. */
async function createHeldAttempt(
  testServer: TestServer,
  { url, ask, mark }: Pick<AccountClient, "account" | "url" | "ask"> & { mark: string },
): Promise<string> {
  const { messageId } = await ask("POST", `/v2/publish/${url}`, {
    ...{ body: mark, headers: { "svc-ack-timeout": "1h" } },
  });
  const delivery = takeDelivery(testServer, messageId);
  await testServer.settle(delivery, { status: 202, headers: [["Svc-Ack", "later"]] });
  return makeAttemptToken(delivery.message, delivery.attempt);
}

async function createDeadLetter(
  testServer: TestServer,
  { token, url, mark }: { account: string; token: string; url: string; mark: string },
): Promise<string> {
  const { body } = await testServer.ask("POST", `/v2/publish/${url}`, {
    token,
    headers: { "svc-retries": "0" },
    body: mark,
  });
  await testServer.settle(takeDelivery(testServer, body.messageId), { status: 500, body: Buffer.from(mark) });
  return (await testServer.ask("GET", "/v2/dlq", { token })).body.messages[0].dlqId;
}

type AccountClient = {
  account: string;
  token: string;
  url: string;
  ask(method: string, path: string, more?: Parameters<TestServer["ask"]>[2]): Promise<Reply["body"]>;
};

async function createRuns(testServer: TestServer, { account, url, ask }: AccountClient) {
  const runId = `wfr_${account}`;
  const eventId = `event-${account}`;
  await start(testServer, runId, { account, url });
  const step = { stepId: 1, stepName: "s", stepType: "Wait" };
  await ask("POST", `/v2/wait/${eventId}`, {
    headers: { "svc-workflow-runid": runId },
    body: JSON.stringify({ url, step }),
  });
  const failureCallback = { ...callbackTo(`${url}/failed`), retries: 0 };
  const failedRun = await failRunAndRead(testServer, `wfr_${account}_1`, { account, url });
  testServer.deliveries.splice(0);
  const failedCallback = await failRunAndRead(testServer, `wfr_${account}_2`, {
    account,
    url,
    failureCallback,
  });
  const [callback] = testServer.deliveries.splice(0);
  if (!callback) throw new Error("there is no failure callback");
  await testServer.settle(callback, { status: 500 });
  const openCallback = await failRunAndRead(testServer, `wfr_${account}_3`, {
    account,
    url,
    failureCallback,
  });
  testServer.deliveries.splice(0);
  return { runId, eventId, failedRun, failedCallback, openCallback };
}

/** The kind of id in each path parameter. */
const places: readonly (readonly [path: RegExp, kind: Kind])[] = [
  [/^\/v2\/topics\//, "group"],
  [/^\/v2\/queues\/|^\/v2\/enqueue\/\{queue\}/, "queue"],
  [/^\/v2\/flowControl\//, "key"],
  [/^\/v2\/messages\/\{messageId\}\/end-attempt/, "sentMessage"],
  [/^\/v2\/messages\//, "messageId"],
  [/^\/v2\/hosts\//, "host"],
  [/^\/v2\/schedules\/\{scheduleId\}/, "scheduleId"],
  [/^\/v2\/sources\//, "sourceId"],
  [/^\/v2\/outboxes\//, "outbox"],
  [/^\/v2\/tokens\//, "tokenId"],
  [/^\/v2\/jobs\//, "jobId"],
  [/^\/v2\/in\//, "secret"],
  [/^\/v2\/(wait|notify|waiters)\/\{eventId\}/, "eventId"],
  [/^\/v2\/workflows\/dlq\/callback/, "failedCallback"],
  [/^\/v2\/workflows\/dlq\//, "failedRun"],
  [/^\/v2\/dlq\//, "dlqId"],
  [/\{workflowRunId\}/, "runId"],
];

/** Returns the body that adds an outbox. */
const makeOutbox = ({ url, token }: Pick<Possessions, "url" | "token">) => ({
  databaseUrl: `postgres://relay:password@${new URL(url).host}/shop`,
  token,
});

/** The headers and bodies that requests need to succeed. */
const extraParts = ({
  ids,
  url,
  token,
}: Possessions): Readonly<Record<string, { body?: unknown; headers?: Record<string, string> }>> => ({
  "POST /v2/batch": { body: [{ destination: "https://e.example" }] },
  "POST /v2/batch/trigger": { body: [{ destination: "https://e.example" }] },
  "POST /v2/topics/{name}/endpoints": { body: { endpoints: [{ url: "https://e.example" }] } },
  "DELETE /v2/topics/{name}/endpoints": { body: { endpoints: [{ url }] } },
  "PATCH /v2/topics/{name}": { body: { headers: { "Svc-Retries": "1" } } },
  "PATCH /v2/schedules/{scheduleId}": { body: { settings: { "Svc-Retries": "2" } } },
  "POST /v2/schedules/{destination}": { headers: { "svc-cron": "0 0 1 1 *" } },
  "POST /v2/queues": { body: { queueName: ids.queue } },
  "POST /v2/wait/{eventId}": {
    headers: { "svc-workflow-runid": ids.runId },
    body: { url: "https://e.example", step: { stepId: 2, stepName: "s", stepType: "Wait" } },
  },
  "POST /v2/workflows/runs/{workflowRunId}/run-on/{call}": {
    body: { stepId: 2, stepName: "s", stepType: "Run" },
  },
  "POST /v2/tokens": { body: { verbs: ["read"] } },
  "PUT /v2/admin/alerts": {
    body: { url: "https://e.example", secret: `whsec_${Buffer.alloc(24).toString("base64")}` },
  },
  "PUT /v2/alerts": { body: { url: "https://e.example" } },
  "POST /v2/jobs": { body: { action: "dlq.delete", filter: {} } },
  "POST /v2/sources": { body: { name: "s", destination: "https://e.example" } },
  "PUT /v2/outboxes/{name}": { body: makeOutbox({ url, token }) },
  "POST /v2/attempts": { body: { extend: "10m" }, headers: { "svc-attempt": ids.attempt } },
  "POST /v2/attempts/batch": { body: { reports: [{ attempt: ids.attempt, extend: "10m" }] } },
  "PUT /v2/pulled": { body: { origin: "https://new.example" } },
  "POST /v2/pull": { body: { origin: ids.origin, wait: "0s" } },
  "PATCH /v2/sources/{sourceId}": { body: { paused: true } },
  "POST /v2/admin/accounts": { body: { name: "newcomer" } },
  "PATCH /v2/admin/accounts/{account}": { body: { plan: "paid", limits: { retries: 5 } } },
  "POST /v2/flowControl/{key}/pin": { body: undefined },
});

/** The queries that requests need to succeed, by the end of their path. */
const neededQueries: readonly (readonly [end: string, query: string])[] = [
  ["/pin", "?parallelism=3"],
  ["/search", "?query=refused"],
  ["/unpin", "?parallelism=true"],
  ["DELETE /v2/pulled", "?origin=https://e.example"],
  ["/end-attempt", "?attempt=0"],
  ["/end-attempts", "?startedBefore=4000000000000"],
];

/** Returns the query that requests of a route need to succeed. */
export const findNeededQuery = ({ method, path }: Pick<Route, "method" | "path">): string =>
  neededQueries.find(([end]) => `${method} ${path}`.endsWith(end))?.[1] ?? "";

/** The parts of a request. */
export type RequestParts = { method: string; url: string; headers: Record<string, string>; body?: string };

/**
 * Returns the request of a route for an object of an account, as its owner would send it. `put` replaces the
 * id in the path.
 */
export function makeRequest(row: Route, of: Possessions, put?: string): RequestParts {
  const { method, path } = row;
  const name = `${method} ${path}`;
  const kind =
    method === "DELETE" && path.endsWith("/callback/{dlqId}")
      ? "openCallback"
      : places.find(([pattern]) => pattern.test(path))?.[1];
  const id = put ?? (kind === undefined ? "x" : of.ids[kind]);
  const filled = path
    .replace("{destination}", "https://e.example/x")
    .replace("{userId}", put ?? of.account)
    .replace("{id}", put ?? of.account)
    .replace("{account}", put ?? of.account)
    .replace("{call}", "msg_1.0.c1")
    .replace("{workflowRunId}/{eventId}", `${put ?? of.ids.runId}/${put ?? of.ids.eventId}`)
    .replaceAll(/\{\w+\}/g, encodeURIComponent(id));
  const { body, headers = {} } = extraParts(of)[name] ?? accountBody(row, put ?? of.account);
  const query =
    name === "DELETE /v2/pulled"
      ? `?origin=${encodeURIComponent(put ?? of.ids.origin)}`
      : findNeededQuery(row);
  return {
    method,
    url: filled + query,
    headers: { ...headers, authorization: authorizationFor(row, of) },
    ...(body !== undefined && { body: JSON.stringify(body) }),
  };
}

const authorizationFor = ({ access }: Route, { account, password, token }: Possessions): string => {
  if (access === "operator") return formatBasic("operator", operatorPassword);
  return access === "account" ? formatBasic(account, password) : `Bearer ${token}`;
};

/** The bodies of the account API. */
function accountBody({ path }: Route, id: string): { body?: unknown; headers?: Record<string, string> } {
  if (path.endsWith("/move-to-team"))
    return { body: { [path.includes("/svc/") ? "svc_id" : "qstash_id"]: id, target_team_id: "team" } };
  if (path.includes("/set-plan/")) return { body: { plan_name: "paid" } };
  return path.includes("/update-budget/") ? { body: { budget: 50 } } : {};
}

/** Sends a request. */
export const sendRequest = ({ ask }: TestServer, { method, url, ...more }: RequestParts): Promise<Reply> =>
  ask(method, url, { token: null, ...more });

/** Returns all rows of an account as text. */
export const dumpRows = ({ memory }: TestServer, account: string): string =>
  JSON.stringify(
    Object.entries(memory.tables).map(([table, rows]) => [
      table,
      [...(rows as Map<string, unknown>)].filter(
        ([key]) => key === account || key.startsWith(`${account}\n`),
      ),
    ]),
    (_, value: unknown) => (value instanceof Uint8Array ? Buffer.from(value).toString("latin1") : value),
  );
