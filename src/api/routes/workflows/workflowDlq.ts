import { z } from "zod";
import type { NotDone } from "../../../core/values/errors.ts";
import { toFailedMember, Refusal } from "../../../core/values/errors.ts";
import { readIdTime, isDlqId } from "../../../core/values/ids.ts";
import { groupFailures } from "../../../core/workflows/failureGroups.ts";
import { memory } from "../../../core/values/limits.ts";
import type { Account, AccountId } from "../../../core/model/message.ts";
import type { RunOverrides } from "../../../core/commands/resume.ts";
import { findFailedStep, formatFailure } from "../../../core/model/failureText.ts";
import type { DeadLetterEntry } from "../../../store/queries/deadLetters.ts";
import { retentionFor } from "../../../core/commands/retention.ts";
import { dryRun, dryRunSchema, dryRunParameter } from "../../publishing/dryRun.ts";
import type { IdPage } from "../../publishing/dryRun.ts";
import { chosenRunFilters, continuedRunFilters, readEntries, toFailedRunFilter, failedRunFilters } from "../lists/failedRunLists.ts";
import { cursorParameter, orderParameter } from "../lists/filters.ts";
import { count } from "../../http/parameters.ts";
import { omitMissing } from "../../views/messages.ts";
import { entryJson, entrySchema } from "../../views/failedRuns.ts";
import type { RouteResponse, IncomingRequest, RouteContext, Route } from "../../route/route.ts";
import { route } from "../../route/route.ts";
import { notDoneSchema } from "../../views/schemas.ts";
import { shorten } from "../../http/target.ts";
import { readRunOverrides, resumeSettings } from "../../publishing/runOverrides.ts";
import type { Sweep } from "../lists/sweep.ts";
import { readSweep } from "../lists/sweep.ts";

const tag = "Failed workflow runs";
const byId = z.object({ dlqId: z.string() });
const portion = (about: string) => count({ max: 100, defaultCount: 100, about });
const nextPage = z.string().optional().describe("Where to go on. Absent at the end.");

const list = route({
  method: "GET",
  path: "/v2/workflows/dlq",
  tag,
  summary: "List failed workflow runs",
  about:
    "Runs that have failed for good: each is the message that failed, with the last response, the run it was of with its initial payload as body, and what became of its failure callback. fromDate and toDate are compared with the time of the failure. GET /v2/dlq?source=workflow answers the same.",
  query: failedRunFilters.extend({
    order: orderParameter("earliestFirst"),
    count: portion("Pages with large bodies are shorter."),
    cursor: cursorParameter,
  }),
  answers: { 200: { about: "A page of entries.", schema: z.object({ messages: z.array(entrySchema), cursor: nextPage }) } },
  refusals: [],
  handle: async ({ account, query, context }) => {
    const { entries, cursor } = await readEntries(context, account.id, { ...query, filter: toFailedRunFilter(query) });
    return { status: 200, body: { messages: entries.map(entryJson), ...(cursor === null ? {} : { cursor }) } };
  },
});

const get = route({
  method: "GET",
  path: "/v2/workflows/dlq/{dlqId}",
  tag,
  summary: "Read a failed workflow run",
  params: byId,
  answers: { 200: { about: "The entry.", schema: entrySchema } },
  refusals: ["not-found"],
  handle: async ({ account, params, context }) => ({ status: 200, body: entryJson(await failedRun(context, account.id, params.dlqId)) }),
});

const deletedSchema = z.object({
  deleted: z.int().describe("How many there were, and are gone now."),
  failed: notDoneSchema,
  cursor: nextPage,
});

const remove = route({
  method: "DELETE",
  path: "/v2/workflows/dlq/{dlqId}",
  tag,
  summary: "Delete a failed workflow run",
  about: "It cannot be resumed then. What the log knows of it stays for the log's own time.",
  params: byId,
  query: z.object(dryRunParameter),
  answers: { 200: { about: "It is gone; or that it would be.", schema: z.union([deletedSchema, dryRunSchema]) } },
  refusals: ["not-found"],
  handle: async ({ account, params: { dlqId }, query, context }) => {
    await failedRun(context, account.id, dlqId);
    if (query.dryRun === "true") return { status: 200, body: await dryRun(makeSinglePage(dlqId)) };
    const answer = await removeAll(context, account, [dlqId]);
    if (answer.deleted === 0) throw makeNotFound(dlqId);
    return { status: 200, body: answer };
  },
});

const makeSinglePage = (dlqId: string) => async (): Promise<IdPage> => ({ ids: [dlqId], cursor: null });

const removeMany = route({
  method: "DELETE",
  path: "/v2/workflows/dlq",
  tag,
  summary: "Delete many failed workflow runs",
  about: "Those with the given ids, or those that pass all filters, oldest first. Without any filter, all of them pass.",
  query: chosenRunFilters.extend({
    count: portion("Does not count when dlqIds is given."),
    cursor: cursorParameter,
    ...dryRunParameter,
  }),
  answers: { 200: { about: "How many are gone; or how many would be.", schema: z.union([deletedSchema, dryRunSchema]) } },
  refusals: [],
  handle: async ({ account, query, context }) => {
    const max = query.dlqIds?.length ?? query.count;
    const readPage = createPageReader(context, account.id, query);
    if (query.dryRun === "true") return { status: 200, body: await dryRun(readPage, max) };
    const { ids, cursor, covers } = await readPage(null, max);
    const { deleted, failed = [] } = await removeAll(context, account, ids);
    const unknownIds = exclude((query.dlqIds ?? []).filter(covers), ids).map(describeMissing);
    return { status: 200, body: { deleted, ...toFailedMember([...unknownIds, ...failed]), ...(cursor === null ? {} : { cursor }) } };
  },
});

/** The ids that are not among `known`, each once. */
const exclude = (ids: readonly string[], known: readonly string[]): string[] => {
  const found = new Set(known);
  return [...new Set(ids)].filter((id) => !found.has(id));
};

const describeMissing = (dlqId: string): NotDone => ({ id: shorten(dlqId), reason: makeNotFound(dlqId).message });

const removeAll = ({ store, retention }: RouteContext, account: Account, dlqIds: readonly string[]) =>
  store.execute("deleteDeadLetters", { account: account.id, dlqIds, logRetention: retentionFor(account, retention).log });

type Selection = z.output<typeof failedRunFilters> & { cursor?: string | undefined };

/** The ids of failed runs that are there and were asked for, portion by portion. */
const createPageReader =
  (context: RouteContext, account: AccountId, query: Selection, runIds: "runIds" | "runIdStarts" = "runIds") =>
  (cursor: string | null, count: number): Promise<Sweep> =>
    readSweep(context, account, { filter: toFailedRunFilter(query, runIds), cursor: cursor ?? query.cursor, count });

/** So many are resumed or restarted by one request, one after another: each brings its history into memory. */
const maxTogether = 50;

const resumedSchema = z.object({
  workflowRunId: z.string().describe("The new run."),
  workflowCreatedAt: z.int().describe("In unix milliseconds."),
  dlqId: z.string().describe("The entry that it was made of, which is gone."),
});
const resumedManySchema = z.object({
  workflowRuns: z.array(resumedSchema),
  cursor: z.string().describe("Where to go on. Empty at the end."),
  failed: notDoneSchema,
});

type ContinueFrom = "failure" | "beginning";

const settingNames = [...resumeSettings].join(", ");
const continuations: Record<ContinueFrom, { name: "resume" | "restart"; summary: string; about: string }> = {
  failure: {
    name: "resume",
    summary: "Resume",
    about: `Goes on where it failed, as a new run with a new id: steps that have a result keep it, the others run again. The code of the workflow may have changed only behind the failed step. The entry goes. Settings of this request replace those of the run: ${settingNames}; a flow control key without a value keeps the value of the run, and a value without a key keeps the key; a run that had neither needs both.`,
  },
  beginning: {
    name: "restart",
    summary: "Restart",
    about: `Begins again with the initial payload, as a new run with a new id. The entry goes. Settings of this request replace those of the run: ${settingNames}; a flow control key without a value keeps the value of the run, and a value without a key keeps the key; a run that had neither needs both.`,
  },
};

const continueOne = (from: ContinueFrom): Route =>
  route({
    method: "POST",
    path: `/v2/workflows/dlq/${continuations[from].name}/{dlqId}`,
    tag,
    summary: `${continuations[from].summary} a failed workflow run`,
    about: `${continuations[from].about} Its id may be chosen with Workflow-RunId.`,
    settings: "resume",
    params: byId,
    query: z.object(dryRunParameter),
    answers: { 200: { about: "The new run; or that there would be one.", schema: z.union([resumedSchema, dryRunSchema]) } },
    refusals: ["not-found", "limit-exceeded", "storage-quota-exceeded", "forbidden"],
    handle: async ({ account, params: { dlqId }, query, incoming, context }) => {
      const { overrides, ignored } = readRunOverrides(incoming, { isForMany: false, account });
      if (!isDlqId(dlqId)) throw makeNotFound(dlqId);
      if (query.dryRun === "true") {
        await failedRun(context, account.id, dlqId);
        return { status: 200, body: await dryRun(makeSinglePage(dlqId)), ignored };
      }
      return { status: 200, body: await continueRun(context, { account, from, overrides, dlqId }), ignored };
    },
  });

const continueMany = (from: ContinueFrom): Route =>
  route({
    method: "POST",
    path: `/v2/workflows/dlq/${continuations[from].name}`,
    tag,
    summary: `${continuations[from].summary} many failed workflow runs`,
    about: `Those with the given ids, or those that pass all filters, oldest first; at most ${maxTogether} by one request. ${continuations[from].about} Without any filter, all of them pass. An entry that cannot be continued stays, and failed says why.`,
    settings: "resume",
    query: continuedRunFilters.extend({
      count: count({ max: maxTogether, defaultCount: maxTogether }),
      cursor: cursorParameter,
      ...dryRunParameter,
    }),
    answers: { 200: { about: "The new runs; or how many there would be.", schema: z.union([resumedManySchema, dryRunSchema]) } },
    refusals: ["limit-exceeded", "storage-quota-exceeded", "forbidden"],
    handle: ({ account, query, incoming, context }) => continueSelected(context, { account, from, query, incoming }),
  });

type ContinueManyRequest = {
  account: Account;
  from: ContinueFrom;
  query: Selection & { count: number; dryRun?: "true" | "false" | undefined };
  incoming: IncomingRequest;
};

async function continueSelected(context: RouteContext, { account, from, query, incoming }: ContinueManyRequest): Promise<RouteResponse> {
  const { overrides, ignored } = readRunOverrides(incoming, { isForMany: true, account });
  const { count: max } = query;
  const readPage = createPageReader(context, account.id, query, "runIdStarts");
  if (query.dryRun === "true") return { status: 200, body: await dryRun(readPage, max), ignored };
  const page = query.dlqIds ? selectNamed(query.dlqIds, query.cursor, max) : await readPage(null, max);
  const { failed, ...body } = await continueEach(context, { account, from, overrides, page });
  const unknownIds = query.cursor === undefined ? (query.dlqIds ?? []).filter((dlqId) => !isDlqId(dlqId)) : [];
  return { status: 200, body: { ...body, ...toFailedMember([...failed, ...exclude(unknownIds, []).map(describeMissing)]) }, ignored };
}

/** A portion of the ids that were given, in their order. One that is not there is met when it is its turn, and told of. */
function selectNamed(dlqIds: readonly string[], cursor = "", max: number): Portion {
  if (cursor !== "" && !isDlqId(cursor)) throw new Refusal("invalid", "cursor: not one that this list has given out");
  const left = [...new Set(dlqIds)].filter((dlqId) => isDlqId(dlqId) && dlqId > cursor).sort();
  const ids = left.slice(0, max);
  return { ids, cursor: left.length > max ? (ids.at(-1) ?? null) : null, cursorAfter: (dlqId) => dlqId };
}

/** As of a sweep; what is not there is met when it is its turn. */
type Portion = Omit<Sweep, "covers">;

type ContinueRequest = { account: Account; from: ContinueFrom; overrides: RunOverrides };

/** When the storage fails on the way, the answer tells what was done, and where to go on. */
async function continueEach(context: RouteContext, { page, ...continueRequest }: ContinueRequest & { page: Portion }) {
  const workflowRuns: z.output<typeof resumedSchema>[] = [];
  const failed: NotDone[] = [];
  let done = "";
  for (const dlqId of page.ids) {
    try {
      workflowRuns.push(await continueRun(context, { ...continueRequest, dlqId }));
    } catch (error) {
      const isEntryError =
        error instanceof Refusal && (error.code === "invalid" || error.code === "not-found" || error.code === "limit-exceeded");
      if (isEntryError) failed.push({ id: dlqId, reason: error.message });
      else if (workflowRuns.length > 0) return { workflowRuns, cursor: page.cursorAfter(done), failed };
      else throw error;
    }
    done = dlqId;
  }
  return { workflowRuns, cursor: page.cursor ?? "", failed };
}

async function continueRun({ store, retention }: RouteContext, { account, from, overrides, dlqId }: ContinueRequest & { dlqId: string }) {
  const logRetention = retentionFor(account, retention).log;
  const { runId, createdAt } = await store.execute("resumeRun", { account: account.id, dlqId, from, overrides, logRetention });
  return { workflowRunId: runId, workflowCreatedAt: createdAt, dlqId };
}

const failedRunSchema = z.object({ workflowRunId: z.string(), workflowCreatedAt: z.int() }).describe("The run that has failed.");

const repeatCallback = route({
  method: "POST",
  path: "/v2/workflows/dlq/callback/{dlqId}",
  tag,
  summary: "Call a failure callback again",
  about: "Only one that has failed itself, so in the state CALLBACK_FAIL.",
  params: byId,
  answers: { 200: { about: "It is called again.", schema: failedRunSchema } },
  refusals: ["not-found"],
  handle: async ({ account, params: { dlqId }, context }) => {
    if (!isDlqId(dlqId)) throw makeNotFound(dlqId);
    const { runId, createdAt } = await context.store.execute("repeatFailureCallback", { account: account.id, dlqId });
    return { status: 200, body: { workflowRunId: runId, workflowCreatedAt: createdAt } };
  },
});

const cancelCallback = route({
  method: "DELETE",
  path: "/v2/workflows/dlq/callback/{dlqId}",
  tag,
  summary: "Cancel a failure callback",
  about:
    "Only one that is in progress, so in the state CALLBACK_INPROGRESS. One that is being sent at this moment is cut off; it may have arrived.",
  params: byId,
  answers: { 200: { about: "It is cancelled.", schema: failedRunSchema } },
  refusals: ["not-found"],
  handle: async ({ account, params: { dlqId }, context }) => {
    const { deadLetter, failed } = await failedRun(context, account.id, dlqId);
    const callback = failed?.run?.failure?.callback;
    const messageIds = deadLetter.failureCallback?.state === "CALLBACK_INPROGRESS" && callback ? [callback.messageId] : [];
    const { cancelled } = await context.store.execute("cancel", { account: account.id, messageIds });
    if (cancelled === 0)
      throw new Refusal("invalid", `dlqId: the failure callback of ${dlqId} is not in progress, so there is nothing to cancel`);
    return { status: 200, body: { workflowRunId: deadLetter.run?.runId, workflowCreatedAt: deadLetter.run?.createdAt } };
  },
});

const groupSchema = z.object({
  workflowUrl: z.string(),
  stepName: z.string().optional().describe("The step that failed. Absent where neither the endpoint nor its message tells."),
  afterStep: z.string().optional().describe("Otherwise the last step before it, if there was one."),
  error: z.string().describe("The error, with … for what differs from one to the next: numbers, ids, quoted texts."),
  count: z.int(),
  firstFailedAt: z.int().describe("In unix milliseconds."),
  lastFailedAt: z.int(),
  dlqId: z.string().describe("The latest of them."),
});

/** So many entries are looked at for one answer, or so many that their bodies come to a page of a list. */
const maxGrouped = 1_000;

const groups = route({
  method: "GET",
  path: "/v2/workflows/dlq/groups",
  tag,
  summary: "Group failed workflow runs",
  about: `Runs of one workflow that failed at the same step with the same error, the most frequent first. The latest ${maxGrouped} entries that pass all filters are grouped; the cursor goes on with those before.`,
  query: failedRunFilters.extend({ cursor: cursorParameter }),
  answers: {
    200: {
      about: "The groups.",
      schema: z.object({
        groups: z.array(groupSchema),
        entries: z.int().describe("How many were grouped."),
        more: z.literal(true).optional().describe("There are others, which are in no group yet."),
        cursor: nextPage,
      }),
    },
  },
  refusals: [],
  handle: async ({ account, query, context }) => {
    const { entries, cursor } = await readLatestFailures(context, account.id, query);
    const shown = groupFailures(entries).map(({ url, firstAt, lastAt, ...rest }) =>
      omitMissing({ ...rest, workflowUrl: url, firstFailedAt: firstAt, lastFailedAt: lastAt }),
    );
    return { status: 200, body: { groups: shown, entries: entries.length, ...(cursor === null ? {} : { more: true, cursor }) } };
  },
});

/** What is to be grouped. Bodies are let go page by page. */
async function readLatestFailures(context: RouteContext, account: AccountId, query: Selection) {
  const filter = toFailedRunFilter(query);
  const entries: ReturnType<typeof toFailure>[] = [];
  let cursor = query.cursor ?? null;
  let bytes = 0;
  do {
    const page = await readEntries(context, account, { filter, order: "latestFirst", cursor, count: 100 });
    for (const entry of page.entries) {
      bytes += entry.deadLetter.body.byteLength + entry.message.body.byteLength + (entry.failed?.payload.byteLength ?? 0);
      entries.push(toFailure(entry));
    }
    ({ cursor } = page);
  } while (cursor !== null && entries.length < maxGrouped && bytes < memory.page);
  return { entries, cursor };
}

const toFailure = ({ deadLetter, message, failed }: DeadLetterEntry) => ({
  dlqId: deadLetter.id,
  time: readIdTime(deadLetter.id),
  url: deadLetter.run?.url ?? "",
  error: formatFailure(deadLetter, message.redaction),
  ...findFailedStep(message.run?.stepKey, failed?.step?.head, deadLetter.headers),
});

/** The entry of a run. Throws `Refusal` when there is none. */
async function failedRun({ store }: RouteContext, account: AccountId, dlqId: string): Promise<DeadLetterEntry> {
  const entry = isDlqId(dlqId) ? await store.read.deadLetter(account, dlqId) : null;
  if (!entry) throw makeNotFound(dlqId);
  if (!entry.deadLetter.run) throw new Refusal("not-found", `dlqId: ${dlqId} is a message and no run; it is at /v2/dlq/${dlqId}`);
  return entry;
}

const makeNotFound = (id: string): Refusal => new Refusal("not-found", `dlqId: there is no failed run ${JSON.stringify(id.slice(0, 200))}`);

/** Workflow runs that have failed, and how to go on with them. */
export const workflowDlq: readonly Route[] = [
  ...[list, groups, get, remove, removeMany],
  ...[continueOne("failure"), continueMany("failure"), continueOne("beginning"), continueMany("beginning")],
  ...[repeatCallback, cancelCallback],
];
