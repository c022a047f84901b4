import { z } from "zod";
import { Refusal } from "../../core/errors.ts";
import type { Account } from "../../core/message.ts";
import type { DeadLetterPage } from "../../store/queries.ts";
import { cursorParameter, deadLetterFilters, filterOf, isId, orderParameter } from "../filters.ts";
import { givenByHeaders, givenByQuery, readSettings } from "../given.ts";
import { overridesOf } from "../letter.ts";
import { choice, count, one } from "../parameters.ts";
import { deadLetterJson } from "../present.ts";
import type { Incoming, Parts } from "../route.ts";
import { route } from "../route.ts";
import { deadLetter } from "../shapes.ts";

const byId = z.object({ dlqId: z.string() });
const portion = count({ most: 100, normally: 100 });
const nextPage = z.string().optional().describe("Where to go on. Absent at the end.");

const ofRuns = ["workflowRunId", "workflowUrl", "workflowCreatedAt", "failureFunctionState", "failureCallbackState"] as const;
const text = one().optional().describe("Only with source=workflow.");

const list = route({
  method: "GET",
  path: "/v2/dlq",
  tag: "Dead letter queue",
  summary: "List dead letters",
  about: "Messages whose attempts have all failed. fromDate and toDate are compared with the time of the failure.",
  query: deadLetterFilters.extend({
    order: orderParameter("earliestFirst"),
    count: portion.describe("At most so many. Pages with large bodies are shorter."),
    cursor: cursorParameter,
    source: choice(["workflow"]).optional().describe("Failed workflow runs instead. There are none in this version."),
    ...{ workflowRunId: text, workflowUrl: text, workflowCreatedAt: text, failureFunctionState: text, failureCallbackState: text },
  }),
  answers: { 200: { about: "A page of entries.", schema: z.object({ messages: z.array(deadLetter), cursor: nextPage }) } },
  refusals: [],
  handle: async ({ account, query, parts }) => {
    const { source, order } = query;
    if (source === "workflow") return { status: 200, body: { messages: [] } };
    const stranger = ofRuns.find((name) => query[name] !== undefined);
    if (stranger) throw new Refusal("invalid", `${stranger}: there is no such parameter, except with source=workflow`);
    const page = await pageOf(parts, account, { ...query, order });
    return { status: 200, body: { messages: page.entries.map(deadLetterJson), ...(page.cursor === null ? {} : { cursor: page.cursor }) } };
  },
});

const get = route({
  method: "GET",
  path: "/v2/dlq/{dlqId}",
  tag: "Dead letter queue",
  summary: "Read a dead letter",
  params: byId,
  answers: { 200: { about: "The entry.", schema: deadLetter } },
  refusals: ["not-found"],
  handle: async ({ account, params, parts }) => {
    const entry = isId(params.dlqId) ? await parts.store.read.deadLetter(account.id, params.dlqId) : null;
    if (!entry) throw missing(params.dlqId);
    return { status: 200, body: deadLetterJson(entry) };
  },
});

const deleted = z.object({ deleted: z.int().describe("How many there were, and are gone now."), cursor: nextPage });

const remove = route({
  method: "DELETE",
  path: "/v2/dlq/{dlqId}",
  tag: "Dead letter queue",
  summary: "Delete a dead letter",
  params: byId,
  answers: { 200: { about: "It is gone.", schema: deleted } },
  refusals: ["not-found"],
  handle: async ({ account, params, parts }) => {
    const answer = await removeAll(parts, account, [params.dlqId].filter(isId));
    if (answer.deleted === 0) throw missing(params.dlqId);
    return { status: 200, body: answer };
  },
});

const selection = deadLetterFilters.extend({
  count: portion.describe("At most so many. Does not count when dlqIds is given."),
  cursor: cursorParameter,
});

const removeMany = route({
  method: "DELETE",
  path: "/v2/dlq",
  tag: "Dead letter queue",
  summary: "Delete many dead letters",
  about: "Those with the given ids, or those that pass all filters, oldest first. Without any filter, all of them pass.",
  query: selection,
  answers: { 200: { about: "How many are gone.", schema: deleted } },
  refusals: [],
  handle: async ({ account, query, parts }) => {
    const { dlqIds, cursor } = await selected(parts, account, query);
    const answer = await removeAll(parts, account, dlqIds);
    return { status: 200, body: { ...answer, ...(cursor === null ? {} : { cursor }) } };
  },
});

const retried = z.object({ messageId: z.string().describe("The new message.") });
const aboutRetry =
  "The new message has a new id, and the body, headers and settings of the old one; settings of this request replace them.";

const retry = route({
  method: "POST",
  path: "/v2/dlq/retry/{dlqId}",
  tag: "Dead letter queue",
  summary: "Send a dead letter again",
  about: aboutRetry,
  settings: "retry",
  params: byId,
  answers: { 201: { about: "It is a message again.", schema: retried } },
  refusals: ["not-found", "limit-exceeded"],
  handle: async ({ account, params, incoming, parts }) => {
    const { responses, ignored } = await retryAll(parts, { account, incoming, dlqIds: [params.dlqId].filter(isId) });
    const [response] = responses;
    if (!response) throw missing(params.dlqId);
    return { status: 201, body: response, ignored };
  },
});

const retryMany = route({
  method: "POST",
  path: "/v2/dlq/retry",
  tag: "Dead letter queue",
  summary: "Send many dead letters again",
  about: `Those with the given ids, or those that pass all filters, oldest first. Missing ones are skipped. ${aboutRetry}`,
  settings: "retry",
  query: selection,
  answers: {
    201: {
      about: "The new messages.",
      schema: z.object({ cursor: z.string().describe("Where to go on. Empty at the end."), responses: z.array(retried) }),
    },
  },
  refusals: ["limit-exceeded"],
  handle: async ({ account, query, incoming, parts }) => {
    const { dlqIds, cursor } = await selected(parts, account, query);
    const { responses, ignored } = await retryAll(parts, { account, incoming, dlqIds });
    return { status: 201, body: { cursor: cursor ?? "", responses }, ignored };
  },
});

type Selection = z.output<typeof selection>;

async function selected(parts: Parts, account: Account, query: Selection): Promise<{ dlqIds: string[]; cursor: string | null }> {
  if (query.dlqIds) return { dlqIds: query.dlqIds.filter(isId), cursor: null };
  const { entries, cursor } = await pageOf(parts, account, { ...query, order: "earliestFirst" });
  return { dlqIds: entries.map(({ letter }) => letter.id), cursor };
}

function pageOf(parts: Parts, account: Account, query: Selection & { order: "earliestFirst" | "latestFirst" }): Promise<DeadLetterPage> {
  const { dlqIds, order, count, cursor = null } = query;
  if (cursor !== null && !/^\d{13}-\d{1,12}$/.test(cursor)) throw new Refusal("invalid", "cursor: not one that this list has given out");
  const filter = dlqIds ? { dlqIds: dlqIds.filter(isId) } : filterOf(query);
  return parts.store.read.deadLetters({ account: account.id, filter, order, cursor, count });
}

const removeAll = ({ store, retention }: Parts, { id: account }: Account, dlqIds: readonly string[]): Promise<{ deleted: number }> =>
  store.execute("deleteDeadLetters", { account, dlqIds, logRetention: retention.log });

type Retry = { account: Account; incoming: Incoming; dlqIds: readonly string[] };

async function retryAll({ store, retention }: Parts, { account, incoming, dlqIds }: Retry) {
  const { settings, ignored } = readSettings(givenByHeaders(incoming.rawHeaders), givenByQuery(incoming.query.settings));
  const overrides = overridesOf(settings);
  const responses: z.output<typeof retried>[] = [];
  for (const portion of portionsOf([...new Set(dlqIds)])) {
    const input = { account: account.id, dlqIds: portion, logRetention: retention.log, overrides };
    for (const { messageId } of await store.execute("retryDeadLetters", input)) responses.push({ messageId });
  }
  return { responses, ignored };
}

/** The bodies of dead letters that are retried together are in memory together. */
const mostTogether = 4;

const portionsOf = (ids: readonly string[]): string[][] =>
  Array.from({ length: Math.ceil(ids.length / mostTogether) }, (_, at) => ids.slice(at * mostTogether, (at + 1) * mostTogether));

const missing = (id: string): Refusal => new Refusal("not-found", `dlqId: there is no dead letter ${JSON.stringify(id.slice(0, 200))}`);

export const dlq = [list, get, remove, removeMany, retry, retryMany];
