import type { Key, Rows, TableName } from "../../core/decision/command.ts";
import type { Filter } from "../../core/search/filter.ts";
import { hostsWanted, passes } from "../../core/search/filter.ts";
import { birthOf, firstIdAt } from "../../core/values/ids.ts";
import { memory, spans } from "../../core/values/limits.ts";
import type { LimitedList, Retention } from "../../core/commands/retention.ts";
import { auditOf } from "../../core/commands/retention.ts";
import { dayOfSighting, startOfDay } from "../../core/search/timeIndex.ts";
import type { Standing } from "../../core/sending/whyWaiting.ts";
import type { Token } from "../../core/model/rights.ts";
import type {
  Account,
  AccountId,
  Bytes,
  DeadLetter,
  Envelope,
  LogRow,
  MessageId,
  MessageState,
  Millis,
  Source,
} from "../../core/model/message.ts";
import { isUnfinished, noBytes } from "../../core/model/message.ts";
import type { Usage } from "../../core/model/counts.ts";
import type { BucketSize } from "../../core/accounts/usage.ts";
import { bucketsFrom, oldestBuckets, startOfBucket, worthRemovingAt } from "../../core/accounts/usage.ts";
import type { AuditPage, AuditQuery } from "./audit.ts";
import { auditPage } from "./audit.ts";
import { chunksOf, chunksTo, withEnvelopes } from "./pages.ts";
import type { LogPage } from "./logs.ts";
import { logPage } from "./logs.ts";
import { shortestWay } from "./byTag.ts";
import { isAnythingLeft } from "./hasData.ts";
import type { RunLogPage, RunLogQuery } from "./runLogs.ts";
import { runLogPage } from "./runLogs.ts";
import { runQueriesOf } from "./runs.ts";
import { standingOf } from "./waitState.ts";
import { wholeLog } from "./wholeLog.ts";
import type { Run, Step } from "../../core/model/run.ts";
import { initialStepKey, toStepId } from "../../core/model/stepId.ts";
import type { Bodies, ListQuery, QueueNeed, Range, SealedName, Sealing, SealingRange, Shelf, StoredSum } from "./storageReads.ts";
import { envelopesOf, fittingPage, keysOf, lastTime, scanLimit } from "./storageReads.ts";

/** `failed`: of a run, the run itself, the step whose message failed, and the initial payload, as far as they are kept. */
export type DeadLetterEntry = { letter: DeadLetter; envelope: Envelope; failed?: FailedRun };
export type FailedRun = { run: Run | null; step: Step | null; payload: Bytes };
export type DeadLetterPage = { entries: DeadLetterEntry[]; cursor: string | null };
type UnfinishedPage = { messageIds: MessageId[]; cursor: string | null };
/** `finishedAt`: null while it is not finished. */
export type MessageView = { envelope: Envelope; state: MessageState | null; finishedAt: Millis | null };

/** The ids of rows of which there are too many: see `Queries.tooMany`. */
export type TooMany = { id: string | null; count: number };

/** Tables of what people set up, and of what came of it: few rows, so that they are listed as they are. */
export type SetUpName = "groups" | "flows" | "schedules" | "sources" | "tokens" | "rejections";

const mostCountedLeases = 10_000;
const mostSlots = 1_000;

/**
 * Returns every question that can be put to the store. Each is answered from a few plain reads, so that a storage has
 * nothing to decide. A new question is one entry in one of the tables below. Nothing is read before a question is put.
 */
export const queriesOf = (shelf: Shelf) => ({
  ...accountQueriesOf(shelf),
  ...messageQueriesOf(shelf),
  ...runQueriesOf(shelf),
  /** Runs with all that is known of what they have done, newest first. */
  runLog: (query: RunLogQuery): Promise<RunLogPage> => runLogPage(shelf, query),
  ...setUpQueriesOf(shelf),
  ...upkeepQueriesOf(shelf),
});

export type Queries = ReturnType<typeof queriesOf>;

const rowsOneByOne =
  (shelf: Shelf) =>
  async <T extends TableName>(table: T, ...key: Key): Promise<Rows[T] | null> =>
    (await shelf.rows(table, [key]))[0] ?? null;

/** Questions about accounts, and about who asks. */
function accountQueriesOf(shelf: Shelf) {
  const one = rowsOneByOne(shelf);
  return {
    account: (id: AccountId): Promise<Account | null> => one("accounts", id),
    accountByToken: (tokenHash: string): Promise<Account | null> => shelf.accountByToken(tokenHash),
    accounts: (): Promise<readonly Account[]> => shelf.accounts(),
    tokenByHash: (hash: string): Promise<Token | null> => shelf.tokenByHash(hash),
    sourceBySecret: (secretHash: string): Promise<Source | null> => shelf.sourceBySecret(secretHash),
    /** Who did what to the settings of an account, newest first. */
    audit: (query: AuditQuery): Promise<AuditPage> => auditPage(shelf, query),
    /** How many deliveries of an account are under way. Where very much is due within the next seconds, fewer than there are. */
    underWay: (account: AccountId, now: Millis): Promise<number> =>
      // A lease is longer than the clocks of two nodes are apart.
      shelf.countLeased({ account, now, until: now + 2 * spans.lease, scan: mostCountedLeases }),
    /** What an account has used from a time on, in buckets of one size, of all nodes: in the order of their times. */
    usage: (account: AccountId, size: BucketSize, from: Millis): Promise<readonly Usage[]> =>
      usageFrom(shelf, { account, ...bucketsFrom(size, from), limit: usagePage }),
    /**
     * Returns how many bytes accounts store, in no order; those that have stored nothing are absent, and with
     * `changedSince` those that have not changed since that time. One statement for every hundred accounts: it looks for
     * one bucket of each, and adds up some hundred buckets of those that have one.
     */
    storedBytes: (accounts: readonly AccountId[], changedSince: Millis | null): Promise<readonly StoredSum[]> =>
      storedBytes(shelf, accounts, changedSince),
  };
}

/** Questions about messages, dead letters and the log. */
function messageQueriesOf(shelf: Shelf) {
  const one = rowsOneByOne(shelf);
  return {
    message: async (account: AccountId, id: MessageId): Promise<MessageView | null> => {
      const [envelope, row] = [await one("envelopes", account, id), await one("messages", account, id)];
      if (!envelope) return null;
      const state = row && isUnfinished(row) ? row : null;
      const ended = state ? undefined : await lastOf(shelf, account, id);
      return { envelope, state, finishedAt: ended?.time ?? null };
    },
    /** What an unfinished message waits for: see `core/sending/whyWaiting.ts`. Null when it is finished. */
    standing: (account: AccountId, id: MessageId): Promise<Standing | null> => standingOf(shelf, account, id),
    /**
     * Unfinished messages that pass the filter, oldest first; with `ofRuns: false` none that a run waits for. `cursor` is
     * set when it stopped before the end.
     */
    unfinished: (query: Omit<ListQuery, "order">): Promise<UnfinishedPage> => unfinished(shelf, query),
    deadLetter: async (account: AccountId, id: string): Promise<DeadLetterEntry | null> => {
      const letter = await one("deadLetters", account, id);
      const envelope = letter && (await one("envelopes", account, letter.messageId));
      return letter && envelope ? ((await withRuns(shelf, account, [{ letter, envelope }]))[0] ?? null) : null;
    },
    /** `bodies: false`: as many as were asked for, and no more of each than it takes to look for them. */
    deadLetters: (query: ListQuery & Bodies): Promise<DeadLetterPage> => deadLetters(shelf, query),
    log: (query: ListQuery): Promise<LogPage> => logPage(shelf, query),
    /** The oldest unfinished messages of a queue, those that wait for their time included. */
    messagesOfQueue: (of: QueueNeed): Promise<readonly MessageId[]> => shelf.messagesOfQueue(of),
    /** The first thousand messages that hold places in a queue. Some of them may be finished, and their callbacks hold it still. */
    slotsOf: async (account: AccountId, queue: string): Promise<MessageId[]> =>
      (await shelf.slotsOfQueue(account, queue, mostSlots)).map(({ id }) => id),
  };
}

/** Questions about what people have set up. */
const setUpQueriesOf = (shelf: Shelf) => ({
  /** A row that people have set up, by its id or name. */
  setUp: <T extends SetUpName>(table: T, account: AccountId, id: string): Promise<Rows[T] | null> =>
    rowsOneByOne(shelf)(table, account, id),
  /**
   * Such rows in the order of their ids or names. `before` and `after` are exclusive. Schedules
   * and URL groups that are large are fewer than asked for, and none only at the end.
   */
  allSetUp: async <T extends SetUpName>(table: T, range: Range): Promise<readonly Rows[T][]> => {
    if (table !== "schedules" && table !== "groups") return shelf.range(table, range);
    const sizes = await shelf.sizesIn(table, range);
    const bodies = fittingPage(sizes.map(({ body }) => body));
    const settings = fittingPage(
      sizes.map((size) => size.settings),
      memory.settings,
    );
    return shelf.range(table, { ...range, limit: Math.min(bodies, settings) });
  },
});

/** Questions of duties: what is to be removed, or sealed again. */
const upkeepQueriesOf = (shelf: Shelf) => ({
  /**
   * The newest row of an account behind `most` newer ones, null if it has no more than `most`; and how many it has, at
   * most `most`. It goes through as many entries of an index.
   */
  tooMany: (table: LimitedList, account: AccountId, most: number): Promise<TooMany> => tooMany(shelf, table, account, most),
  /** How the secrets of rows are kept, in the order of their keys; of a store in memory, none. */
  sealing: (table: SealedName, range: SealingRange): Promise<readonly Sealing[]> => shelf.sealing(table, range),
  /** When the next of an account's rows is past its time, so that `expire` removes it. */
  nextExpiryAt: (account: AccountId, retention: Retention): Promise<Millis | null> => nextExpiryAt(shelf, account, retention),
  /** Whether anything is left of an account besides its own row. */
  isAnythingLeft: (account: AccountId): Promise<boolean> => isAnythingLeft(shelf, account),
});

async function tooMany(shelf: Shelf, table: LimitedList, account: AccountId, most: number): Promise<TooMany> {
  const id = await shelf.idBehind(table, account, most);
  return { id, count: id === null ? await shelf.count(table, { account, limit: most }) : most };
}

/** The last line of the log of a message. */
const lastOf = async (shelf: Shelf, account: AccountId, id: MessageId): Promise<LogRow | undefined> =>
  (await wholeLog(shelf).logOf(id, { account, descending: true, limit: 1, bodies: false }))[0];

async function unfinished(shelf: Shelf, { account, filter, cursor, count }: Omit<ListQuery, "order">) {
  if (filter.messageIds) return { messageIds: await named(shelf, account, filter.messageIds, filter), cursor: null };
  const messageIds: MessageId[] = [];
  const range = { account, ...bounds("msg", filter, cursor, false) };
  const marked = await shortestWay(shelf, "unfinished", filter, range);
  const hosts = marked ? null : hostsWanted(filter);
  const chunks = hosts ? chunksTo(shelf, hosts, range) : chunksOf(shelf, "messages", { range, marked, limit: count });
  let scanned = 0;
  for await (const { row, envelope } of withEnvelopes(shelf, { account, chunks, messageIdOf: ({ id }) => id })) {
    if (envelope && isMeant(filter, row) && passes(filter, { envelope, time: envelope.createdAt })) messageIds.push(row.id);
    if (messageIds.length === count || ++scanned >= scanLimit) return { messageIds, cursor: row.id };
  }
  return { messageIds, cursor: null };
}

const isMeant = ({ ofRuns }: Filter, state: MessageState): boolean => isUnfinished(state) && (ofRuns !== false || state.run === null);

/** Of the messages that were named those that pass, and are not finished. */
async function named(shelf: Shelf, account: AccountId, ids: readonly MessageId[], filter: Filter): Promise<MessageId[]> {
  const states = (await shelf.rows("messages", keysOf(account, ids))).filter((state) => isMeant(filter, state));
  const envelopes = await envelopesOf(
    shelf,
    account,
    states.map(({ id }) => id),
  );
  const passing = [...envelopes.values()].filter((envelope) => passes(filter, { envelope, time: envelope.createdAt }));
  return passing.map(({ id }) => id).sort();
}

async function deadLetters(shelf: Shelf, query: ListQuery & Bodies): Promise<DeadLetterPage> {
  const page = await outlined(shelf, query);
  if (query.bodies === false) return page;
  const { entries, cursor } = await filled(shelf, query.account, page);
  return { entries: await withRuns(shelf, query.account, entries), cursor };
}

/** Adds what else is known of the runs that some of them are of; without bodies, but for the initial payload. */
async function withRuns(shelf: Shelf, account: AccountId, entries: readonly DeadLetterEntry[]): Promise<DeadLetterEntry[]> {
  const keys = entries.flatMap(({ letter: { run }, envelope }) => (run ? [{ run: run.key, step: stepKeyOf(envelope) }] : []));
  if (keys.length === 0) return [...entries];
  const [runs, steps, payloads] = await Promise.all([
    shelf.rows(
      "runs",
      keysOf(
        account,
        keys.map(({ run }) => run),
      ),
      { bodies: false },
    ),
    shelf.rows(
      "steps",
      keysOf(
        account,
        keys.map(({ step }) => step),
      ),
      { bodies: false },
    ),
    shelf.rows(
      "steps",
      keysOf(
        account,
        keys.map(({ run }) => toStepId(run, initialStepKey)),
      ),
    ),
  ]);
  const payloadBy = new Map(payloads.map((step) => [step.run, step.body]));
  const runBy = new Map(runs.map((run) => [run.id, run]));
  const stepBy = new Map(steps.map((step) => [step.id, step]));
  return entries.map((entry) => {
    const { run } = entry.letter;
    if (!run) return entry;
    const step = stepBy.get(stepKeyOf(entry.envelope)) ?? null;
    return Object.assign(entry, { failed: { run: runBy.get(run.key) ?? null, step, payload: payloadBy.get(run.key) ?? noBytes } });
  });
}

const stepKeyOf = ({ run }: Envelope): string => (run ? toStepId(run.run, run.slot) : "");

/** The page with its bodies. It ends early rather than become larger than a page may be. */
async function filled(shelf: Shelf, account: AccountId, { entries, cursor }: DeadLetterPage): Promise<DeadLetterPage> {
  const letterKeys = entries.map(({ letter }) => [account, letter.id] as const);
  const envelopeKeys = entries.map(({ envelope }) => [account, envelope.id] as const);
  const ofLetters = await shelf.sizes("deadLetters", letterKeys);
  const ofEnvelopes = await shelf.sizes("envelopes", envelopeKeys);
  const payloadOf = ({ letter: { run } }: DeadLetterEntry): string => (run ? toStepId(run.key, initialStepKey) : "");
  const ofPayloads = await shelf.sizes(
    "steps",
    keysOf(
      account,
      entries.flatMap((entry) => payloadOf(entry) || []),
    ),
  );
  const count = fittingPage(
    entries.map((entry) => {
      const { letter, envelope } = entry;
      return (ofLetters.get(letter.id) ?? 0) + (ofEnvelopes.get(envelope.id) ?? 0) + (ofPayloads.get(payloadOf(entry)) ?? 0);
    }),
  );
  const letters = new Map((await shelf.rows("deadLetters", letterKeys.slice(0, count))).map((letter) => [letter.id, letter]));
  const envelopes = new Map((await shelf.rows("envelopes", envelopeKeys.slice(0, count))).map((envelope) => [envelope.id, envelope]));
  const page = entries.slice(0, count).flatMap((entry) => {
    const [letter, envelope] = [letters.get(entry.letter.id), envelopes.get(entry.envelope.id)];
    // It may have gone meanwhile.
    return letter && envelope ? [{ letter, envelope }] : [];
  });
  return { entries: page, cursor: count < entries.length ? (entries[count - 1]?.letter.id ?? null) : cursor };
}

/** The page without its bodies. */
async function outlined(shelf: Shelf, query: ListQuery): Promise<DeadLetterPage> {
  const { account, filter, order, cursor, count } = query;
  const descending = order === "latestFirst";
  const range = { account, descending, ...bounds("dlq", filter, cursor, descending) };
  const marked = filter.dlqIds ? null : await shortestWay(shelf, "dlq", filter, range);
  const chunks = chunksOf(shelf, "deadLetters", { range, marked, limit: count + 1 });
  const source = filter.dlqIds
    ? chosen(shelf, query, filter.dlqIds)
    : withEnvelopes(shelf, { account, chunks, messageIdOf: ({ messageId }) => messageId });
  const entries: DeadLetterEntry[] = [];
  let last: string | null = null;
  let scanned = 0;
  for await (const { row: letter, envelope } of source) {
    // One more than a page shows that there is another page.
    if (entries.length === count) return { entries, cursor: last };
    last = letter.id;
    const time = birthOf(letter.id);
    if (envelope && passes(filter, { envelope, time, dlqId: letter.id, responseStatus: letter.status, letter }))
      entries.push({ letter, envelope });
    if (++scanned >= scanLimit) return { entries, cursor: last };
  }
  return { entries, cursor: null };
}

/** Dead letters that were named, in the order of the list. */
async function* chosen(shelf: Shelf, { account, order, cursor }: ListQuery, ids: readonly string[]) {
  const letters = [...(await shelf.rows("deadLetters", keysOf(account, ids), { bodies: false }))];
  letters.sort((a, b) => (a.id < b.id ? -1 : 1));
  if (order === "latestFirst") letters.reverse();
  const envelopes = await envelopesOf(
    shelf,
    account,
    letters.map(({ messageId }) => messageId),
  );
  for (const row of letters) {
    if (cursor === null || (order === "latestFirst" ? row.id < cursor : row.id > cursor))
      yield { row, envelope: envelopes.get(row.messageId) };
  }
}

/** The stretch of ids in which a filter's time and a cursor leave something to find. */
function bounds(
  kind: "msg" | "dlq",
  { from, to }: Filter,
  cursor: string | null,
  descending: boolean,
): { after?: string; before?: string } {
  const start = from === undefined ? undefined : firstIdAt(kind, Math.min(from, lastTime));
  const end = to === undefined || to >= lastTime ? undefined : firstIdAt(kind, to + 1);
  const after = descending ? start : (cursor ?? start);
  const before = descending ? (cursor ?? end) : end;
  return { ...(after === undefined ? {} : { after }), ...(before === undefined ? {} : { before }) };
}

const after = (time: Millis | null, span: Millis): Millis | null => (time === null ? null : time + span);

const accountsAtOnce = 100;

async function storedBytes(shelf: Shelf, accounts: readonly AccountId[], changedSince: Millis | null): Promise<StoredSum[]> {
  const found: StoredSum[] = [];
  const having = changedSince === null ? bucketsFrom("3h", 0) : bucketsFrom("1m", startOfBucket("1m", changedSince));
  for (let at = 0; at < accounts.length; at += accountsAtOnce)
    found.push(...(await shelf.storedBytes(accounts.slice(at, at + accountsAtOnce), having)));
  return found;
}

const usagePage = 5_000;

/** Some hundred rows; more where nodes came and went all the time. */
async function usageFrom(shelf: Shelf, range: Range): Promise<Usage[]> {
  const rows = [...(await shelf.range("usage", range))];
  for (let last = rows.at(-1); last && rows.length % range.limit === 0;) {
    const page = await shelf.range("usage", { ...range, after: last.id });
    rows.push(...page);
    last = page.at(-1);
  }
  return rows;
}

async function nextExpiryAt(shelf: Shelf, account: AccountId, retention: Retention): Promise<Millis | null> {
  const [log] = await shelf.range("log", { account, limit: 1, bodies: false });
  const [letter] = await shelf.range("deadLetters", { account, limit: 1, bodies: false });
  const buckets = await Promise.all(oldestBuckets.map((ids) => shelf.range("usage", { account, ...ids, limit: 1 })));
  const [entry] = await shelf.range("audit", { account, limit: 1 });
  const [sighting] = await shelf.range("sightings", { account, limit: 1 });
  const times = [
    entry && entry.time + auditOf(retention),
    ...buckets.flat().map(worthRemovingAt),
    log && birthOf(log.id) + retention.log,
    sighting && startOfDay(dayOfSighting(sighting.id) + 1) + retention.log,
    letter && birthOf(letter.id) + retention.deadLetters,
    await shelf.earliestDeduplicationEnd(account),
    after(await shelf.earliestRunEnd(account, { failed: false }), retention.log),
    after(await shelf.earliestRunEnd(account, { failed: true }), Math.max(retention.log, retention.deadLetters)),
  ].filter((time) => typeof time === "number");
  // At the end of its time a row is still there.
  return times.length === 0 ? null : Math.min(...times) + 1;
}
