import { z } from "zod";
import { isId } from "../../../core/values/ids.ts";
import type { NotDone } from "../../../core/values/errors.ts";
import { failedIn, Refusal } from "../../../core/values/errors.ts";
import type { Account, Millis } from "../../../core/model/message.ts";
import type { Overrides } from "../../../core/commands/overrides.ts";
import { overridesAlone } from "../../../core/commands/overrides.ts";
import { sendingLimitBrokenBy } from "../../../core/commands/publish.ts";
import type { Filter } from "../../../core/search/filter.ts";
import { urlsOfOverrides } from "../../../core/commands/overrides.ts";
import { retentionFor } from "../../../core/commands/retention.ts";
import { dryRun, dryRunAnswer, dryRunParameter } from "../../publishing/dryRun.ts";
import { entriesOf, failedRunFilter, onlyOfRuns } from "../lists/failedRunLists.ts";
import { cursorParameter, deadLetterFilters, filterOf, keysOfAction, orderParameter } from "../lists/filters.ts";
import { givenByHeaders, givenByQuery, readChanges } from "../../settings/grammar.ts";
import { overridesOf } from "../../settings/message.ts";
import { choice, count } from "../../http/parameters.ts";
import { entryJson, entryShape } from "../../views/failedRuns.ts";
import type { Incoming, Parts } from "../../route/route.ts";
import { route } from "../../route/route.ts";
import { mustReadToSend } from "../../route/scope.ts";
import { notDone } from "../../views/shapes.ts";
import { shortened } from "../../http/target.ts";
import type { Sweep } from "../lists/sweep.ts";
import { sweepOf } from "../lists/sweep.ts";

const byId = z.object({ dlqId: z.string() });
const portion = (about: string) => count({ most: 100, normally: 100, about });
const nextPage = z.string().optional().describe("Where to go on. Absent at the end.");

const ofRuns = Object.keys(onlyOfRuns) as (keyof typeof onlyOfRuns)[];

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
    ...onlyOfRuns,
  }),
  answers: { 200: { about: "A page of entries.", schema: z.object({ messages: z.array(entryShape), cursor: nextPage }) } },
  refusals: [],
  handle: async ({ account, query, parts }) => {
    const { source, order } = query;
    const isOfRuns = source === "workflow";
    const stranger = ofRuns.find((name) => !isOfRuns && query[name] !== undefined);
    if (stranger) throw new Refusal("invalid", `${stranger}: there is no such parameter, except with source=workflow`);
    const filter = isOfRuns ? failedRunFilter(query) : filterOfMessages(query);
    const { entries, cursor } = await entriesOf(parts, account.id, { ...query, filter, order });
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
  answers: { 200: { about: "The entry.", schema: entryShape } },
  refusals: ["not-found"],
  handle: async ({ account, params, parts }) => {
    const entry = isId(params.dlqId) ? await parts.store.read.deadLetter(account.id, params.dlqId) : null;
    if (!entry) throw missing(params.dlqId);
    return { status: 200, body: entryJson(entry) };
  },
});

const deleted = z.object({ deleted: z.int().describe("How many there were, and are gone now."), failed: notDone, cursor: nextPage });

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
    return { status: 200, body: { deleted: answer.deleted } };
  },
});

const selection = deadLetterFilters.extend({
  ...keysOfAction,
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
  query: selection,
  answers: { 200: { about: "How many are gone; or how many would be.", schema: z.union([deleted, dryRunAnswer]) } },
  refusals: [],
  handle: async ({ account, query, parts }) => {
    if (query.dryRun === "true") return { status: 200, body: await wouldBe(parts, account, query) };
    const { ids, cursor } = await selected(parts, account, query);
    const { deleted, failed = [] } = await removeAll(parts, account, ids);
    const strangers = (query.dlqIds ?? []).filter((id) => !isId(id)).map((id) => notThere(id));
    return { status: 200, body: { deleted, ...failedIn([...failed, ...strangers]), ...(cursor === null ? {} : { cursor }) } };
  },
});

const retried = z.object({
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
  answers: { 201: { about: "It is a message again.", schema: retried } },
  refusals: ["not-found", "limit-exceeded", "storage-quota-exceeded", "forbidden"],
  handle: async ({ account, params, incoming, parts }) => {
    const { overrides, ignored } = changesIn(incoming, account, parts.now());
    const { responses, refused } = await retryAll(parts, { account, overrides, dlqIds: [params.dlqId].filter(isId) });
    const [response] = responses;
    const [refusal] = [...refused, ...(response ? [] : await notRetried(parts, account, [params.dlqId]))];
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
  query: selection,
  answers: {
    201: {
      about: "The new messages; or how many there would be.",
      schema: z.union([
        z.object({
          cursor: z.string().describe("Where to go on. Empty at the end."),
          responses: z.array(retried),
          failed: notDone,
        }),
        dryRunAnswer,
      ]),
    },
  },
  refusals: ["limit-exceeded", "storage-quota-exceeded", "forbidden"],
  handle: async ({ account, query, incoming, parts }) => {
    const { overrides, ignored } = changesIn(incoming, account, parts.now());
    if (query.dryRun === "true") return { status: 201, body: await wouldBe(parts, account, query, { ofRuns: false }), ignored };
    const { ids, cursor, cursorAfter } = await selected(parts, account, query);
    const { responses, refused, stoppedAt } = await retryAll(parts, { account, overrides, dlqIds: ids });
    const met = new Set([...responses, ...refused].map(({ dlqId }) => dlqId));
    // Where the storage has failed, it cannot be asked why others were not there.
    const left = stoppedAt === null ? [...new Set(chosenIn(query))].filter((dlqId) => !met.has(dlqId)) : [];
    const failed = [...refused, ...(await notRetried(parts, account, left))].map(({ dlqId, error }) => ({
      id: shortened(dlqId),
      reason: error.message,
    }));
    const next = stoppedAt === null ? (cursor ?? "") : cursorAfter(stoppedAt);
    return { status: 201, body: { cursor: next, responses, ...failedIn(failed) }, ignored };
  },
});

type Selection = z.output<typeof selection>;

async function selected(parts: Parts, account: Account, query: Selection): Promise<Sweep> {
  if (query.dlqIds) return { ids: chosenIn(query).filter(isId), cursor: null, covers: () => true, cursorAfter: (dlqId) => dlqId };
  return sweepOf(parts, account.id, { ...query, filter: filterOfMessages(query) });
}

/** The ids that were given; with a cursor, those behind the one at which an earlier request stopped. */
const chosenIn = ({ dlqIds = [], cursor }: Selection): string[] => dlqIds.slice(cursor === undefined ? 0 : dlqIds.indexOf(cursor) + 1);

/** What was given by its id is there whatever it is of; a list is of messages only. */
const filterOfMessages = (query: z.output<typeof deadLetterFilters>): Filter =>
  query.dlqIds ? { dlqIds: query.dlqIds.filter(isId) } : { ...filterOf(query), ofRuns: false };

/** How many the same request would do something to. */
function wouldBe(parts: Parts, account: Account, query: Selection, only: Pick<Filter, "ofRuns"> = {}) {
  const filter = { ...filterOfMessages(query), ...only };
  return dryRun(
    (from, count) => sweepOf(parts, account.id, { filter, cursor: from ?? (query.dlqIds ? null : query.cursor), count }),
    query.dlqIds ? query.dlqIds.length : query.count,
  );
}

const removeAll = ({ store, retention }: Parts, account: Account, dlqIds: readonly string[]) =>
  store.execute("deleteDeadLetters", { account: account.id, dlqIds, logRetention: retentionFor(account, retention).log });

/** What is to be different from what was sent before. Throws `Refusal` for what no message may have, before any of them is touched. */
function changesIn(incoming: Incoming, account: Account, now: Millis): { overrides: Overrides; ignored: string[] } {
  const { rawHeaders, query } = incoming;
  const { settings, ignored } = readChanges(givenByHeaders(rawHeaders), givenByQuery(query.settings));
  const overrides = overridesOf(settings);
  mustReadToSend(incoming, "a message with its body", urlsOfOverrides(overrides));
  const { delay = null, notBefore = null } = overrides;
  const broken = sendingLimitBrokenBy(account, { ...overridesAlone(overrides), delay, notBefore }, now);
  if (broken) throw new Refusal(broken.refused, broken.message);
  return { overrides, ignored };
}

type Portion = { account: Account; overrides: Overrides; dlqIds: readonly string[] };

/**
 * What was sent again before something went wrong is told, and where to go on: at `stoppedAt`, after which the same request
 * meets what went wrong as the first thing.
 */
async function retryAll(parts: Parts, { account, overrides, dlqIds }: Portion) {
  const done: Done = { responses: [], refused: [] };
  let stoppedAt: string | null = null;
  for (const portion of portionsOf([...new Set(dlqIds)])) {
    try {
      const { responses, refused } = await retryPortion(parts, { account, overrides, dlqIds: portion });
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

type Done = { responses: z.output<typeof retried>[]; refused: NotRetried[] };
type NotRetried = { dlqId: string; error: Refusal };

/** Where one cannot be sent again, the others are taken one by one. Throws what is not to be said of one of them alone. */
async function retryPortion(parts: Parts, { account, overrides, dlqIds }: Portion): Promise<Done> {
  const input = { account: account.id, dlqIds, logRetention: retentionFor(account, parts.retention).log, overrides };
  try {
    const all = await parts.store.execute("retryDeadLetters", input);
    return { responses: all.map(({ dlqId, messageId }) => ({ messageId, dlqId })), refused: [] };
  } catch (error) {
    if (!(error instanceof Refusal) || (error.code !== "invalid" && error.code !== "limit-exceeded")) throw error;
    const [dlqId = "", ...others] = dlqIds;
    if (others.length === 0) return { responses: [], refused: [{ dlqId, error }] };
  }
  const done: Done = { responses: [], refused: [] };
  for (const dlqId of dlqIds) {
    const { responses, refused } = await retryPortion(parts, { account, overrides, dlqIds: [dlqId] });
    done.responses.push(...responses);
    done.refused.push(...refused);
  }
  return done;
}

/** The bodies of dead letters that are retried together are in memory together. */
const mostTogether = 4;

const portionsOf = (ids: readonly string[]): string[][] =>
  Array.from({ length: Math.ceil(ids.length / mostTogether) }, (_, at) => ids.slice(at * mostTogether, (at + 1) * mostTogether));

/** Why entries were not sent again: they are not there, or of runs. */
async function notRetried(parts: Parts, account: Account, dlqIds: readonly string[]): Promise<NotRetried[]> {
  if (dlqIds.length === 0) return [];
  const filter = { dlqIds: dlqIds.filter(isId), ofRuns: true };
  const { entries } = await entriesOf(parts, account.id, { filter, count: dlqIds.length, bodies: false });
  const ofRuns = new Set(entries.map(({ letter }) => letter.id));
  return dlqIds.map((dlqId) => ({ dlqId, error: ofRuns.has(dlqId) ? isRun(dlqId) : missing(dlqId) }));
}

function isRun(dlqId: string): Refusal {
  const way = `POST /v2/workflows/dlq/resume/${dlqId} resumes it, POST /v2/workflows/dlq/restart/${dlqId} begins again`;
  return new Refusal("invalid", `dlqId: ${dlqId} is a workflow run, and no message that could be sent again; ${way}`);
}

const notThere = (dlqId: string): NotDone => ({ id: shortened(dlqId), reason: missing(dlqId).message });

const missing = (id: string): Refusal => new Refusal("not-found", `dlqId: there is no dead letter ${JSON.stringify(id.slice(0, 200))}`);

export const dlq = [list, get, remove, removeMany, retry, retryMany];
