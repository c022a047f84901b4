import { z } from "zod";
import type { NotDone } from "../../../core/values/errors.ts";
import { failedIn, Refusal } from "../../../core/values/errors.ts";
import { birthOf, isDlqId } from "../../../core/values/ids.ts";
import { groupFailures } from "../../../core/workflows/failureGroups.ts";
import { memory } from "../../../core/values/limits.ts";
import type { Account, AccountId } from "../../../core/model/message.ts";
import type { RunOverrides } from "../../../core/commands/resume.ts";
import { failedStepOf, reasonOf } from "../../../core/model/failureText.ts";
import type { DeadLetterEntry } from "../../../store/queries/index.ts";
import { retentionFor } from "../../../core/commands/retention.ts";
import { dryRun, dryRunAnswer, dryRunParameter } from "../../publishing/dryRun.ts";
import type { IdPage } from "../../publishing/dryRun.ts";
import { chosenRunFilters, continuedRunFilters, entriesOf, failedRunFilter, failedRunFilters } from "../lists/failedRunLists.ts";
import { cursorParameter, orderParameter } from "../lists/filters.ts";
import { count } from "../../http/parameters.ts";
import { present } from "../../views/messages.ts";
import { entryJson, entryShape } from "../../views/failedRuns.ts";
import type { Answer, Incoming, Parts, Route } from "../../route/route.ts";
import { route } from "../../route/route.ts";
import { notDone } from "../../views/shapes.ts";
import { shortened } from "../../http/target.ts";
import { runOverridesOf, settingsOfResume } from "../../publishing/runOverrides.ts";
import type { Sweep } from "../lists/sweep.ts";
import { sweepOf } from "../lists/sweep.ts";

const tag = "Failed workflow runs";
const byId = z.object({ dlqId: z.string() });
const portion = (about: string) => count({ most: 100, normally: 100, about });
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
  answers: { 200: { about: "A page of entries.", schema: z.object({ messages: z.array(entryShape), cursor: nextPage }) } },
  refusals: [],
  handle: async ({ account, query, parts }) => {
    const { entries, cursor } = await entriesOf(parts, account.id, { ...query, filter: failedRunFilter(query) });
    return { status: 200, body: { messages: entries.map(entryJson), ...(cursor === null ? {} : { cursor }) } };
  },
});

const get = route({
  method: "GET",
  path: "/v2/workflows/dlq/{dlqId}",
  tag,
  summary: "Read a failed workflow run",
  params: byId,
  answers: { 200: { about: "The entry.", schema: entryShape } },
  refusals: ["not-found"],
  handle: async ({ account, params, parts }) => ({ status: 200, body: entryJson(await failedRun(parts, account.id, params.dlqId)) }),
});

const deleted = z.object({ deleted: z.int().describe("How many there were, and are gone now."), failed: notDone, cursor: nextPage });

const remove = route({
  method: "DELETE",
  path: "/v2/workflows/dlq/{dlqId}",
  tag,
  summary: "Delete a failed workflow run",
  about: "It cannot be resumed then. What the log knows of it stays for the log's own time.",
  params: byId,
  query: z.object(dryRunParameter),
  answers: { 200: { about: "It is gone; or that it would be.", schema: z.union([deleted, dryRunAnswer]) } },
  refusals: ["not-found"],
  handle: async ({ account, params: { dlqId }, query, parts }) => {
    await failedRun(parts, account.id, dlqId);
    if (query.dryRun === "true") return { status: 200, body: await dryRun(only(dlqId)) };
    const answer = await removeAll(parts, account, [dlqId]);
    if (answer.deleted === 0) throw missing(dlqId);
    return { status: 200, body: answer };
  },
});

const only = (dlqId: string) => async (): Promise<IdPage> => ({ ids: [dlqId], cursor: null });

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
  answers: { 200: { about: "How many are gone; or how many would be.", schema: z.union([deleted, dryRunAnswer]) } },
  refusals: [],
  handle: async ({ account, query, parts }) => {
    const most = query.dlqIds?.length ?? query.count;
    const pageOf = pagesOf(parts, account.id, query);
    if (query.dryRun === "true") return { status: 200, body: await dryRun(pageOf, most) };
    const { ids, cursor, covers } = await pageOf(null, most);
    const { deleted, failed = [] } = await removeAll(parts, account, ids);
    const strangers = without((query.dlqIds ?? []).filter(covers), ids).map(unknownEntry);
    return { status: 200, body: { deleted, ...failedIn([...strangers, ...failed]), ...(cursor === null ? {} : { cursor }) } };
  },
});

/** The ids that are not among `known`, each once. */
const without = (ids: readonly string[], known: readonly string[]): string[] => {
  const found = new Set(known);
  return [...new Set(ids)].filter((id) => !found.has(id));
};

const unknownEntry = (dlqId: string): NotDone => ({ id: shortened(dlqId), reason: missing(dlqId).message });

const removeAll = ({ store, retention }: Parts, account: Account, dlqIds: readonly string[]) =>
  store.execute("deleteDeadLetters", { account: account.id, dlqIds, logRetention: retentionFor(account, retention).log });

type Selection = z.output<typeof failedRunFilters> & { cursor?: string | undefined };

/** The ids of failed runs that are there and were asked for, portion by portion. */
const pagesOf =
  (parts: Parts, account: AccountId, query: Selection, runIds: "runIds" | "runIdStarts" = "runIds") =>
  (cursor: string | null, count: number): Promise<Sweep> =>
    sweepOf(parts, account, { filter: failedRunFilter(query, runIds), cursor: cursor ?? query.cursor, count });

/** So many are resumed or restarted by one request, one after another: each brings its history into memory. */
const mostTogether = 50;

const resumed = z.object({
  workflowRunId: z.string().describe("The new run."),
  workflowCreatedAt: z.int().describe("In unix milliseconds."),
  dlqId: z.string().describe("The entry that it was made of, which is gone."),
});
const resumedMany = z.object({
  workflowRuns: z.array(resumed),
  cursor: z.string().describe("Where to go on. Empty at the end."),
  failed: notDone,
});

type From = "failure" | "beginning";

const settingNames = [...settingsOfResume].join(", ");
const whatHappens: Record<From, { name: "resume" | "restart"; summary: string; about: string }> = {
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

const continueOne = (from: From): Route =>
  route({
    method: "POST",
    path: `/v2/workflows/dlq/${whatHappens[from].name}/{dlqId}`,
    tag,
    summary: `${whatHappens[from].summary} a failed workflow run`,
    about: `${whatHappens[from].about} Its id may be chosen with Workflow-RunId.`,
    settings: "resume",
    params: byId,
    query: z.object(dryRunParameter),
    answers: { 200: { about: "The new run; or that there would be one.", schema: z.union([resumed, dryRunAnswer]) } },
    refusals: ["not-found", "limit-exceeded", "storage-quota-exceeded", "forbidden"],
    handle: async ({ account, params: { dlqId }, query, incoming, parts }) => {
      const { overrides, ignored } = runOverridesOf(incoming, { many: false, account });
      if (!isDlqId(dlqId)) throw missing(dlqId);
      if (query.dryRun === "true") {
        await failedRun(parts, account.id, dlqId);
        return { status: 200, body: await dryRun(only(dlqId)), ignored };
      }
      return { status: 200, body: await goOn(parts, { account, from, overrides, dlqId }), ignored };
    },
  });

const continueMany = (from: From): Route =>
  route({
    method: "POST",
    path: `/v2/workflows/dlq/${whatHappens[from].name}`,
    tag,
    summary: `${whatHappens[from].summary} many failed workflow runs`,
    about: `Those with the given ids, or those that pass all filters, oldest first; at most ${mostTogether} by one request. ${whatHappens[from].about} Without any filter, all of them pass. An entry that cannot be continued stays, and failed says why.`,
    settings: "resume",
    query: continuedRunFilters.extend({
      count: count({ most: mostTogether, normally: mostTogether }),
      cursor: cursorParameter,
      ...dryRunParameter,
    }),
    answers: { 200: { about: "The new runs; or how many there would be.", schema: z.union([resumedMany, dryRunAnswer]) } },
    refusals: ["limit-exceeded", "storage-quota-exceeded", "forbidden"],
    handle: ({ account, query, incoming, parts }) => goOnWithMany(parts, { account, from, query, incoming }),
  });

type Many = {
  account: Account;
  from: From;
  query: Selection & { count: number; dryRun?: "true" | "false" | undefined };
  incoming: Incoming;
};

async function goOnWithMany(parts: Parts, { account, from, query, incoming }: Many): Promise<Answer> {
  const { overrides, ignored } = runOverridesOf(incoming, { many: true, account });
  const { count: most } = query;
  const pageOf = pagesOf(parts, account.id, query, "runIdStarts");
  if (query.dryRun === "true") return { status: 200, body: await dryRun(pageOf, most), ignored };
  const page = query.dlqIds ? named(query.dlqIds, query.cursor, most) : await pageOf(null, most);
  const { failed, ...body } = await goOnWithEach(parts, { account, from, overrides, page });
  const strangers = query.cursor === undefined ? (query.dlqIds ?? []).filter((dlqId) => !isDlqId(dlqId)) : [];
  return { status: 200, body: { ...body, ...failedIn([...failed, ...without(strangers, []).map(unknownEntry)]) }, ignored };
}

/** A portion of the ids that were given, in their order. One that is not there is met when it is its turn, and told of. */
function named(dlqIds: readonly string[], cursor = "", most: number): Portion {
  if (cursor !== "" && !isDlqId(cursor)) throw new Refusal("invalid", "cursor: not one that this list has given out");
  const left = [...new Set(dlqIds)].filter((dlqId) => isDlqId(dlqId) && dlqId > cursor).sort();
  const ids = left.slice(0, most);
  return { ids, cursor: left.length > most ? (ids.at(-1) ?? null) : null, cursorAfter: (dlqId) => dlqId };
}

/** As of a sweep; what is not there is met when it is its turn. */
type Portion = Omit<Sweep, "covers">;

type Each = { account: Account; from: From; overrides: RunOverrides };

/** When the storage fails on the way, the answer tells what was done, and where to go on. */
async function goOnWithEach(parts: Parts, { page, ...of }: Each & { page: Portion }) {
  const workflowRuns: z.output<typeof resumed>[] = [];
  const failed: NotDone[] = [];
  let done = "";
  for (const dlqId of page.ids) {
    try {
      workflowRuns.push(await goOn(parts, { ...of, dlqId }));
    } catch (error) {
      const isOfEntry =
        error instanceof Refusal && (error.code === "invalid" || error.code === "not-found" || error.code === "limit-exceeded");
      if (isOfEntry) failed.push({ id: dlqId, reason: error.message });
      else if (workflowRuns.length > 0) return { workflowRuns, cursor: page.cursorAfter(done), failed };
      else throw error;
    }
    done = dlqId;
  }
  return { workflowRuns, cursor: page.cursor ?? "", failed };
}

async function goOn({ store, retention }: Parts, { account, from, overrides, dlqId }: Each & { dlqId: string }) {
  const logRetention = retentionFor(account, retention).log;
  const { runId, createdAt } = await store.execute("resumeRun", { account: account.id, dlqId, from, overrides, logRetention });
  return { workflowRunId: runId, workflowCreatedAt: createdAt, dlqId };
}

const ofFailed = z.object({ workflowRunId: z.string(), workflowCreatedAt: z.int() }).describe("The run that has failed.");

const repeatCallback = route({
  method: "POST",
  path: "/v2/workflows/dlq/callback/{dlqId}",
  tag,
  summary: "Call a failure callback again",
  about: "Only one that has failed itself, so in the state CALLBACK_FAIL.",
  params: byId,
  answers: { 200: { about: "It is called again.", schema: ofFailed } },
  refusals: ["not-found"],
  handle: async ({ account, params: { dlqId }, parts }) => {
    if (!isDlqId(dlqId)) throw missing(dlqId);
    const { runId, createdAt } = await parts.store.execute("repeatFailureCallback", { account: account.id, dlqId });
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
  answers: { 200: { about: "It is cancelled.", schema: ofFailed } },
  refusals: ["not-found"],
  handle: async ({ account, params: { dlqId }, parts }) => {
    const { letter, failed } = await failedRun(parts, account.id, dlqId);
    const callback = failed?.run?.failure?.callback;
    const messageIds = letter.failureCallback?.state === "CALLBACK_INPROGRESS" && callback ? [callback.messageId] : [];
    const { cancelled } = await parts.store.execute("cancel", { account: account.id, messageIds });
    if (cancelled === 0)
      throw new Refusal("invalid", `dlqId: the failure callback of ${dlqId} is not in progress, so there is nothing to cancel`);
    return { status: 200, body: { workflowRunId: letter.run?.runId, workflowCreatedAt: letter.run?.createdAt } };
  },
});

const group = z.object({
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
const mostGrouped = 1_000;

const groups = route({
  method: "GET",
  path: "/v2/workflows/dlq/groups",
  tag,
  summary: "Group failed workflow runs",
  about: `Runs of one workflow that failed at the same step with the same error, the most frequent first. The latest ${mostGrouped} entries that pass all filters are grouped; the cursor goes on with those before.`,
  query: failedRunFilters.extend({ cursor: cursorParameter }),
  answers: {
    200: {
      about: "The groups.",
      schema: z.object({
        groups: z.array(group),
        entries: z.int().describe("How many were grouped."),
        more: z.literal(true).optional().describe("There are others, which are in no group yet."),
        cursor: nextPage,
      }),
    },
  },
  refusals: [],
  handle: async ({ account, query, parts }) => {
    const { entries, cursor } = await latest(parts, account.id, query);
    const shown = groupFailures(entries).map(({ url, firstAt, lastAt, ...rest }) =>
      present({ ...rest, workflowUrl: url, firstFailedAt: firstAt, lastFailedAt: lastAt }),
    );
    return { status: 200, body: { groups: shown, entries: entries.length, ...(cursor === null ? {} : { more: true, cursor }) } };
  },
});

/** What is to be grouped. Bodies are let go page by page. */
async function latest(parts: Parts, account: AccountId, query: Selection) {
  const filter = failedRunFilter(query);
  const entries: ReturnType<typeof failureOf>[] = [];
  let cursor = query.cursor ?? null;
  let bytes = 0;
  do {
    const page = await entriesOf(parts, account, { filter, order: "latestFirst", cursor, count: 100 });
    for (const entry of page.entries) {
      bytes += entry.letter.body.byteLength + entry.envelope.body.byteLength + (entry.failed?.payload.byteLength ?? 0);
      entries.push(failureOf(entry));
    }
    ({ cursor } = page);
  } while (cursor !== null && entries.length < mostGrouped && bytes < memory.page);
  return { entries, cursor };
}

const failureOf = ({ letter, envelope, failed }: DeadLetterEntry) => ({
  ...{ dlqId: letter.id, time: birthOf(letter.id), url: letter.run?.url ?? "", error: reasonOf(letter, envelope.redaction) },
  ...failedStepOf(envelope.run?.slot, failed?.step?.head, letter.headers),
});

/** The entry of a run. Throws `Refusal` when there is none. */
async function failedRun({ store }: Parts, account: AccountId, dlqId: string): Promise<DeadLetterEntry> {
  const entry = isDlqId(dlqId) ? await store.read.deadLetter(account, dlqId) : null;
  if (!entry) throw missing(dlqId);
  if (!entry.letter.run) throw new Refusal("not-found", `dlqId: ${dlqId} is a message and no run; it is at /v2/dlq/${dlqId}`);
  return entry;
}

const missing = (id: string): Refusal => new Refusal("not-found", `dlqId: there is no failed run ${JSON.stringify(id.slice(0, 200))}`);

/** Workflow runs that have failed, and how to go on with them. */
export const workflowDlq: readonly Route[] = [
  ...[list, groups, get, remove, removeMany],
  ...[continueOne("failure"), continueMany("failure"), continueOne("beginning"), continueMany("beginning")],
  ...[repeatCallback, cancelCallback],
];
