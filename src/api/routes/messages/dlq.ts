import { z } from "zod";
import { isId } from "../../../core/values/ids.ts";
import type { NotDone } from "../../../core/values/errors.ts";
import { toFailedMember, Refusal } from "../../../core/values/errors.ts";
import type { Account, Millis } from "../../../core/model/message.ts";
import type { Overrides } from "../../../core/commands/overrides.ts";
import { expandOverrides } from "../../../core/commands/overrides.ts";
import { findSendingRefusal } from "../../../core/commands/publish.ts";
import type { Filter } from "../../../core/search/filter.ts";
import { listOverrideUrls } from "../../../core/commands/overrides.ts";
import { retentionFor } from "../../../core/commands/retention.ts";
import { dryRun, dryRunSchema, dryRunParameter } from "../../publishing/dryRun.ts";
import { readEntries, toFailedRunFilter, runOnlyFilters } from "../lists/failedRunLists.ts";
import { cursorParameter, deadLetterFilters, toFilter, actionKeyFilters, orderParameter } from "../lists/filters.ts";
import { listHeaderSettings, listQuerySettings, readChanges } from "../../settings/grammar.ts";
import { readOverrides } from "../../settings/message.ts";
import { choice, count } from "../../http/parameters.ts";
import { entryJson, entrySchema } from "../../views/failedRuns.ts";
import type { IncomingRequest, RouteContext } from "../../route/route.ts";
import { route } from "../../route/route.ts";
import { checkMayReadToSend } from "../../route/scope.ts";
import { notDoneSchema } from "../../views/schemas.ts";
import { shorten } from "../../http/target.ts";
import type { Sweep } from "../lists/sweep.ts";
import { readSweep } from "../lists/sweep.ts";

const byId = z.object({ dlqId: z.string() });
const portion = (about: string) => count({ max: 100, defaultCount: 100, about });
const nextPage = z.string().optional().describe("Where to go on. Absent at the end.");

const runOnlyNames = Object.keys(runOnlyFilters) as (keyof typeof runOnlyFilters)[];

const list = route({
  method: "GET",
  path: "/v2/dlq",
  tag: "Dead letter queue",
  summary: "List dead letters",
  about:
    "Messages whose attempts have all failed; with source=workflow, workflow runs that have failed. fromDate and toDate are compared with the time of the failure.",
  query: deadLetterFilters.extend({
    order: orderParameter("earliestFirst"),
    count: portion("Pages with large bodies are shorter."),
    cursor: cursorParameter,
    source: choice(["workflow"]).optional().describe("Failed workflow runs instead. Only they can be asked for by what runs have."),
    ...runOnlyFilters,
  }),
  answers: { 200: { about: "A page of entries.", schema: z.object({ messages: z.array(entrySchema), cursor: nextPage }) } },
  refusals: [],
  handle: async ({ account, query, context }) => {
    const { source, order } = query;
    const isOfRuns = source === "workflow";
    const runOnlyName = runOnlyNames.find((name) => !isOfRuns && query[name] !== undefined);
    if (runOnlyName) throw new Refusal("invalid", `${runOnlyName}: there is no such parameter, except with source=workflow`);
    const filter = isOfRuns ? toFailedRunFilter(query) : toMessageFilter(query);
    const { entries, cursor } = await readEntries(context, account.id, { ...query, filter, order });
    return { status: 200, body: { messages: entries.map(entryJson), ...(cursor === null ? {} : { cursor }) } };
  },
});

const get = route({
  method: "GET",
  path: "/v2/dlq/{dlqId}",
  tag: "Dead letter queue",
  summary: "Read a dead letter",
  about: "Of a message, or of a workflow run: their ids are of one kind.",
  params: byId,
  answers: { 200: { about: "The entry.", schema: entrySchema } },
  refusals: ["not-found"],
  handle: async ({ account, params, context }) => {
    const entry = isId(params.dlqId) ? await context.store.read.deadLetter(account.id, params.dlqId) : null;
    if (!entry) throw makeNotFound(params.dlqId);
    return { status: 200, body: entryJson(entry) };
  },
});

const deletedSchema = z.object({
  deleted: z.int().describe("How many there were, and are gone now."),
  failed: notDoneSchema,
  cursor: nextPage,
});

const remove = route({
  method: "DELETE",
  path: "/v2/dlq/{dlqId}",
  tag: "Dead letter queue",
  summary: "Delete a dead letter",
  params: byId,
  answers: { 200: { about: "It is gone.", schema: deletedSchema } },
  refusals: ["not-found"],
  handle: async ({ account, params, context }) => {
    const answer = await removeAll(context, account, [params.dlqId].filter(isId));
    if (answer.deleted === 0) throw makeNotFound(params.dlqId);
    return { status: 200, body: { deleted: answer.deleted } };
  },
});

const selectionSchema = deadLetterFilters.extend({
  ...actionKeyFilters,
  count: portion("Does not count when dlqIds is given."),
  cursor: cursorParameter,
  ...dryRunParameter,
});

const removeMany = route({
  method: "DELETE",
  path: "/v2/dlq",
  tag: "Dead letter queue",
  summary: "Delete many dead letters",
  about: "Those with the given ids, or those that pass all filters, oldest first. Without any filter, all of them pass.",
  query: selectionSchema,
  answers: { 200: { about: "How many are gone; or how many would be.", schema: z.union([deletedSchema, dryRunSchema]) } },
  refusals: [],
  handle: async ({ account, query, context }) => {
    if (query.dryRun === "true") return { status: 200, body: await countSelected(context, account, query) };
    const { ids, cursor } = await selectEntries(context, account, query);
    const { deleted, failed = [] } = await removeAll(context, account, ids);
    const unknownIds = (query.dlqIds ?? []).filter((id) => !isId(id)).map((id) => describeMissing(id));
    return { status: 200, body: { deleted, ...toFailedMember([...failed, ...unknownIds]), ...(cursor === null ? {} : { cursor }) } };
  },
});

const retriedSchema = z.object({
  messageId: z.string().describe("The new message."),
  dlqId: z.string().describe("The entry that it was made of, which is gone."),
});
const aboutRetry =
  "The new message has a new id, and the body, headers and settings of the old one; settings of this request replace them, one by one. A callback that is given with its URL replaces the old one as a whole. What is redacted already stays so.";

const retry = route({
  method: "POST",
  path: "/v2/dlq/retry/{dlqId}",
  tag: "Dead letter queue",
  summary: "Send a dead letter again",
  about: aboutRetry,
  settings: "retry",
  params: byId,
  answers: { 201: { about: "It is a message again.", schema: retriedSchema } },
  refusals: ["not-found", "limit-exceeded", "storage-quota-exceeded", "forbidden"],
  handle: async ({ account, params, incoming, context }) => {
    const { overrides, ignored } = readRetryChanges(incoming, account, context.now());
    const { responses, refused } = await retryAll(context, { account, overrides, dlqIds: [params.dlqId].filter(isId) });
    const [response] = responses;
    const [refusal] = [...refused, ...(response ? [] : await explainNotRetried(context, account, [params.dlqId]))];
    if (refusal) throw refusal.error;
    return { status: 201, body: response, ignored };
  },
});

const retryMany = route({
  method: "POST",
  path: "/v2/dlq/retry",
  tag: "Dead letter queue",
  summary: "Send many dead letters again",
  about: `Those with the given ids, or those that pass all filters, oldest first. ${aboutRetry} One that cannot be sent again, such as with more retries than the account may have now, stays, and failed says why. When the storage fails on the way, the answer tells of those before, with a cursor.`,
  settings: "retry",
  query: selectionSchema,
  answers: {
    201: {
      about: "The new messages; or how many there would be.",
      schema: z.union([
        z.object({
          cursor: z.string().describe("Where to go on. Empty at the end."),
          responses: z.array(retriedSchema),
          failed: notDoneSchema,
        }),
        dryRunSchema,
      ]),
    },
  },
  refusals: ["limit-exceeded", "storage-quota-exceeded", "forbidden"],
  handle: async ({ account, query, incoming, context }) => {
    const { overrides, ignored } = readRetryChanges(incoming, account, context.now());
    if (query.dryRun === "true")
      return { status: 201, body: await countSelected(context, account, query, { belongsToRun: false }), ignored };
    const { ids, cursor, cursorAfter } = await selectEntries(context, account, query);
    const { responses, refused, stoppedAt } = await retryAll(context, { account, overrides, dlqIds: ids });
    const seen = new Set([...responses, ...refused].map(({ dlqId }) => dlqId));
    // Where the storage has failed, it cannot be asked why others were not there.
    const unseen = stoppedAt === null ? [...new Set(listChosenIds(query))].filter((dlqId) => !seen.has(dlqId)) : [];
    const failed = [...refused, ...(await explainNotRetried(context, account, unseen))].map(({ dlqId, error }) => ({
      id: shorten(dlqId),
      reason: error.message,
    }));
    const next = stoppedAt === null ? (cursor ?? "") : cursorAfter(stoppedAt);
    return { status: 201, body: { cursor: next, responses, ...toFailedMember(failed) }, ignored };
  },
});

type Selection = z.output<typeof selectionSchema>;

async function selectEntries(context: RouteContext, account: Account, query: Selection): Promise<Sweep> {
  if (query.dlqIds) return { ids: listChosenIds(query).filter(isId), cursor: null, covers: () => true, cursorAfter: (dlqId) => dlqId };
  return readSweep(context, account.id, { ...query, filter: toMessageFilter(query) });
}

/** The ids that were given; with a cursor, those behind the one at which an earlier request stopped. */
const listChosenIds = ({ dlqIds = [], cursor }: Selection): string[] => dlqIds.slice(cursor === undefined ? 0 : dlqIds.indexOf(cursor) + 1);

/** What was given by its id is there whatever it is of; a list is of messages only. */
const toMessageFilter = (query: z.output<typeof deadLetterFilters>): Filter =>
  query.dlqIds ? { dlqIds: query.dlqIds.filter(isId) } : { ...toFilter(query), belongsToRun: false };

/** How many the same request would do something to. */
function countSelected(context: RouteContext, account: Account, query: Selection, only: Pick<Filter, "belongsToRun"> = {}) {
  const filter = { ...toMessageFilter(query), ...only };
  return dryRun(
    (from, count) => readSweep(context, account.id, { filter, cursor: from ?? (query.dlqIds ? null : query.cursor), count }),
    query.dlqIds ? query.dlqIds.length : query.count,
  );
}

const removeAll = ({ store, retention }: RouteContext, account: Account, dlqIds: readonly string[]) =>
  store.execute("deleteDeadLetters", { account: account.id, dlqIds, logRetention: retentionFor(account, retention).log });

/** What is to be different from what was sent before. Throws `Refusal` for what no message may have, before any of them is touched. */
function readRetryChanges(incoming: IncomingRequest, account: Account, now: Millis): { overrides: Overrides; ignored: string[] } {
  const { rawHeaders, query } = incoming;
  const { settings, ignored } = readChanges(listHeaderSettings(rawHeaders), listQuerySettings(query.settings));
  const overrides = readOverrides(settings);
  checkMayReadToSend(incoming, "a message with its body", listOverrideUrls(overrides));
  const { delay = null, notBefore = null } = overrides;
  const broken = findSendingRefusal(account, { ...expandOverrides(overrides), delay, notBefore }, now);
  if (broken) throw new Refusal(broken.refused, broken.message);
  return { overrides, ignored };
}

type Portion = { account: Account; overrides: Overrides; dlqIds: readonly string[] };

/**
 * What was sent again before something went wrong is told, and where to go on: at `stoppedAt`, after which the same request
 * meets what went wrong as the first thing.
 */
async function retryAll(context: RouteContext, { account, overrides, dlqIds }: Portion) {
  const done: RetryResult = { responses: [], refused: [] };
  let stoppedAt: string | null = null;
  for (const portion of splitPortions([...new Set(dlqIds)])) {
    try {
      const { responses, refused } = await retryPortion(context, { account, overrides, dlqIds: portion });
      done.responses.push(...responses);
      done.refused.push(...refused);
    } catch (error) {
      if (done.responses.length === 0 || stoppedAt === null) throw error;
      return { ...done, stoppedAt };
    }
    stoppedAt = portion.at(-1) ?? stoppedAt;
  }
  return { ...done, stoppedAt: null };
}

type RetryResult = { responses: z.output<typeof retriedSchema>[]; refused: NotRetried[] };
type NotRetried = { dlqId: string; error: Refusal };

/** Where one cannot be sent again, the others are taken one by one. Throws what is not to be said of one of them alone. */
async function retryPortion(context: RouteContext, { account, overrides, dlqIds }: Portion): Promise<RetryResult> {
  const input = { account: account.id, dlqIds, logRetention: retentionFor(account, context.retention).log, overrides };
  try {
    const all = await context.store.execute("retryDeadLetters", input);
    return { responses: all.map(({ dlqId, messageId }) => ({ messageId, dlqId })), refused: [] };
  } catch (error) {
    if (!(error instanceof Refusal) || (error.code !== "invalid" && error.code !== "limit-exceeded")) throw error;
    const [dlqId = "", ...others] = dlqIds;
    if (others.length === 0) return { responses: [], refused: [{ dlqId, error }] };
  }
  const done: RetryResult = { responses: [], refused: [] };
  for (const dlqId of dlqIds) {
    const { responses, refused } = await retryPortion(context, { account, overrides, dlqIds: [dlqId] });
    done.responses.push(...responses);
    done.refused.push(...refused);
  }
  return done;
}

/** The bodies of dead letters that are retried together are in memory together. */
const maxTogether = 4;

const splitPortions = (ids: readonly string[]): string[][] =>
  Array.from({ length: Math.ceil(ids.length / maxTogether) }, (_, at) => ids.slice(at * maxTogether, (at + 1) * maxTogether));

/** Why entries were not sent again: they are not there, or of runs. */
async function explainNotRetried(context: RouteContext, account: Account, dlqIds: readonly string[]): Promise<NotRetried[]> {
  if (dlqIds.length === 0) return [];
  const filter = { dlqIds: dlqIds.filter(isId), belongsToRun: true };
  const { entries } = await readEntries(context, account.id, { filter, count: dlqIds.length, bodies: false });
  const ofRuns = new Set(entries.map(({ deadLetter }) => deadLetter.id));
  return dlqIds.map((dlqId) => ({ dlqId, error: ofRuns.has(dlqId) ? makeRunRefusal(dlqId) : makeNotFound(dlqId) }));
}

function makeRunRefusal(dlqId: string): Refusal {
  const alternatives = `POST /v2/workflows/dlq/resume/${dlqId} resumes it, POST /v2/workflows/dlq/restart/${dlqId} begins again`;
  return new Refusal("invalid", `dlqId: ${dlqId} is a workflow run, and no message that could be sent again; ${alternatives}`);
}

const describeMissing = (dlqId: string): NotDone => ({ id: shorten(dlqId), reason: makeNotFound(dlqId).message });

const makeNotFound = (id: string): Refusal =>
  new Refusal("not-found", `dlqId: there is no dead letter ${JSON.stringify(id.slice(0, 200))}`);

export const dlq = [list, get, remove, removeMany, retry, retryMany];
