import type {
  DamageableName,
  BodyTableName,
  Draft,
  DueNeed,
  DueRows,
  Hint,
  Key,
  LeasedNeed,
  NodeCapacity,
  ReadableName,
  Rows,
  RunNeed,
  RunRows,
  RunTableName,
  TableName,
  WaitlistHead,
} from "../../core/decision/command.ts";
import { findPulledOrigin } from "../../core/accounts/pulledOrigins.ts";
import type { DeliveryCapacity, NextDelivery } from "../../core/admission/capacity.ts";
import { hasBacklog, laneName } from "../../core/admission/capacity.ts";
import { hasLimiter, parseGate } from "../../core/admission/gate.ts";
import { makeTagIds, retaggedTables } from "../../core/search/tags.ts";
import { readIndexInterval, listTimeIndexIds } from "../../core/search/timeIndex.ts";
import type { AccountId, Millis } from "../../core/values/basics.ts";
import type { Delivery } from "../../core/model/delivery.ts";
import type { LeaseRef, MessageState } from "../../core/model/messageState.ts";
import type { WithoutBody } from "../../core/model/message.ts";
import type { RunKey } from "../../core/model/runPost.ts";
import { noBytes } from "../../core/values/basics.ts";
import type { Step } from "../../core/model/run.ts";
import { toStepId } from "../../core/model/stepId.ts";
import { requireUndamaged } from "../../core/decision/requireUndamaged.ts";
import { toKey } from "../catalog/rowKeys.ts";
import { BatchReads } from "./batchReads.ts";
import { Effects } from "./effects.ts";
import { selectStillExpired } from "./expirations.ts";
import type { BatchOptions, Loader } from "./loader.ts";
import type { Change } from "./overlay.ts";
import { Overlay } from "./overlay.ts";
import type { RecentTimeIndex, TimeIndexEntry } from "./recentTimeIndex.ts";
import { BatchCapacity } from "./takenCapacity.ts";
import { UndoLog } from "./undoLog.ts";
import type { Own } from "./wantedReads.ts";

/**
 * The rows that the decisions of one batch read and change. The loader adds rows to the overlay, the overlay
 * holds the rows as the commands left them, and the undo log reverts a command that throws.
 */
export class WorkingSet implements Draft {
  readonly #undo = new UndoLog();
  readonly #overlay = new Overlay(this.#undo);
  readonly effects = new Effects(this.#undo);
  readonly #reads: BatchReads;
  readonly #capacity: DeliveryCapacity;
  readonly #takenCapacity: BatchCapacity;
  readonly #recentTimeIndex: RecentTimeIndex;
  /** Messages that the running command has taken out of a waitlist. */
  #leftWaitlist: MessageState[] = [];

  constructor(
    loader: Loader,
    capacity: DeliveryCapacity,
    { recentTimeIndex, ...options }: BatchOptions & { recentTimeIndex: RecentTimeIndex },
  ) {
    this.#reads = new BatchReads(this.#overlay, loader, {
      ...options,
      undo: this.#undo,
      bytes: capacity.bytes.perBatch,
    });
    this.#capacity = capacity;
    this.#takenCapacity = new BatchCapacity(capacity, this.#undo);
    this.#recentTimeIndex = recentTimeIndex;
  }

  /** Loads the rows of hints. */
  loadHints(hints: readonly Own<Hint>[]): Promise<void> {
    return this.#reads.loadHints(hints);
  }

  /**
   * Undoes everything since a command missed something, and loads what this command and those after it have
   * looked for and did not find.
   */
  loadMissing(now: Millis): Promise<void> {
    this.#undo.rollBackAll();
    return this.#reads.loadWanted(now);
  }

  /**
   * Reports whether something was looked for that is not loaded. Everything that commands do from then on is
   * undone.
   */
  isMissing = (): boolean => this.#reads.isMissing;

  /** Returns the bytes of the bodies that `loadMissing` will load for messages to send. */
  bodyBytesToLoad = (): number => this.#reads.bodyBytesToLoad;

  /**
   * Runs the command with this number in the batch: either all of its changes are made, or none if it throws.
   * If the storage fails to answer a read, its error is thrown, and the batch must end.
   */
  runCommand<Answer>(number: number, run: () => Answer): { answer: Answer } | { error: unknown } {
    this.#undo.begin();
    this.#leftWaitlist = [];
    this.#reads.begin(number);
    let result: { answer: Answer } | { error: unknown };
    try {
      result = { answer: run() };
    } catch (error) {
      this.#undo.rollBack();
      result = { error };
    }
    if (this.#reads.failure) throw this.#reads.failure.error;
    // A waitlist that is not loaded looks empty. The next commands must not see what follows from that.
    if (this.#reads.isWaitlistMissing) this.#undo.rollBack();
    const isFinal = !this.#reads.isMissing;
    this.effects.usage.end({ isFinal: isFinal && !("error" in result) });
    if (isFinal) this.#leaveWaitlists();
    if (isFinal) this.#undo.keep();
    return result;
  }

  /** Reports the destinations that got no capacity to the owner of the capacity. */
  reportDenied(): void {
    this.#takenCapacity.reportDenied();
  }

  /** Returns the tables whose rows were loaded or written. */
  listTouchedTables(): readonly TableName[] {
    return this.#overlay.listTouchedTables();
  }

  /** Returns the net changes of a table: the rows that differ from what the storage holds. */
  changes<T extends TableName>(table: T): readonly Change<Rows[T]>[] {
    return this.#overlay.changes(table);
  }

  /** Returns the number of changed rows of a table. */
  countChanges(table: TableName): number {
    return this.#overlay.countChanges(table);
  }

  get<T extends ReadableName>(table: T, ...key: Key): Rows[T] | undefined {
    return requireUndamaged(table, key, this.#reads.row(table, key));
  }

  getWithoutBody<T extends BodyTableName & ReadableName>(
    table: T,
    ...key: Key
  ): WithoutBody<Rows[T]> | undefined {
    return requireUndamaged(table, key, this.#reads.rowWithoutBody(table, key));
  }

  inspect<T extends DamageableName>(table: T, ...key: Key): Rows[T] | undefined {
    return this.#reads.row(table, key);
  }

  inspectWithoutBody<T extends DamageableName & BodyTableName>(
    table: T,
    ...key: Key
  ): WithoutBody<Rows[T]> | undefined {
    return this.#reads.rowWithoutBody(table, key);
  }

  /** Returns a row if it is known, and reads nothing. */
  peek<T extends TableName>(table: T, ...key: Key): Rows[T] | undefined {
    return this.#overlay.get(table, key);
  }

  /** Reports whether a row was loaded, written or removed, so that `peek` returns it as it is now. */
  isKnown(table: TableName, ...key: Key): boolean {
    return this.#overlay.entry(table, key) !== undefined;
  }

  put<T extends TableName>(table: T, row: Rows[T]): void {
    const key = toKey[table](row);
    const before = this.#set(table, key, row);
    if (before === undefined) this.#reads.quotaCounts.change(table, key, 1);
    const toTagIds = makeTagIds[table];
    if (toTagIds && (before === undefined || retaggedTables.has(table)))
      this.#updateTags(key[0], before ? toTagIds(before) : [], toTagIds(row));
    if (table === "messages" && "state" in row && row.state === "held") this.#reads.waitlistHeads.join(row);
  }

  drop(table: TableName, ...key: Key): void {
    for (const id of this.#listTags(table, key)) this.#set("tags", [key[0], id], undefined);
    if (this.#set(table, key, undefined) !== undefined) this.#reads.quotaCounts.change(table, key, -1);
  }

  moveToKeptLog: Draft["moveToKeptLog"] = (row) => {
    this.#set("log", [row.account, row.id], undefined);
    this.#set("keptLog", [row.account, row.id], row);
  };

  listKeptLog: Draft["listKeptLog"] = (account, messageId) =>
    this.#reads.keptLogIds([account, messageId]).flatMap((id) => this.peek("keptLog", account, id) ?? []);

  wasRunIdUsed: Draft["wasRunIdUsed"] = (account, runId) =>
    this.#overlay.hasRunWithId([account, runId]) || this.#reads.wasRunIdUsed([account, runId]);

  readQuotaCount: Draft["readQuotaCount"] = (need) => this.#reads.readQuotaCount(need);

  indexTime: Draft["indexTime"] = (account, id, timeKeys) => {
    const entry: TimeIndexEntry = { account, at: readIndexInterval(id), timeKeys };
    if (this.#recentTimeIndex.has(entry)) return;
    if (this.#recentTimeIndex.isFull(entry, this.effects.newTimeIndexEntries.length))
      entry.timeKeys = undefined;
    if (this.#recentTimeIndex.has(entry)) return;
    const ids = listTimeIndexIds(entry.timeKeys, entry.at).filter(
      (name) => !this.peek("timeIndex", account, name),
    );
    for (const name of ids) this.#set("timeIndex", [account, name], { account, id: name });
    if (ids.length > 0) this.effects.add(this.effects.newTimeIndexEntries, entry);
  };

  count: Draft["count"] = (account, counts, source) => this.effects.usage.count(account, counts, source);

  due(need: DueNeed): DueRows {
    const { at, turns, ...found } = this.#reads.due(need);
    const isDue = ({ dueAt }: { dueAt: Millis | null }): boolean => dueAt !== null && dueAt <= at;
    return {
      turns,
      messages: this.#readCurrent("messages", found.messages).filter(isDue),
      hostWaitlists: found.hostWaitlists
        .flatMap(({ account, host }) => this.peek("hostWaitlists", account, host) ?? [])
        .filter(isDue),
      limiters: this.#readCurrent("limiters", found.limiters).filter(isDue),
      schedules: this.#readCurrent("schedules", found.schedules).filter(isDue),
      waiters: this.#readCurrent("waiters", found.waiters).filter(isDue),
    };
  }

  listRunRows<T extends RunTableName>(
    table: T,
    { account, run }: RunNeed,
    event?: string,
  ): readonly RunRows[T][] {
    const need = { account, run, table, ...(event !== undefined && { event }) };
    const findRow = (id: string): RunRows[T] | undefined =>
      (table === "notifications" || table === "steps"
        ? this.#reads.knownWithoutBody(table, [account, id])
        : this.peek(table, account, id)) as RunRows[T] | undefined;
    return this.#reads
      .runRowIds(need)
      .flatMap((id) => findRow(id) ?? [])
      .filter((row) => row.run === run && (event === undefined || !("event" in row) || row.event === event));
  }

  listSteps(account: AccountId, run: RunKey, stepKey?: string): readonly Step[] {
    if (stepKey !== undefined) {
      const step =
        this.#reads.hasHistory({ account, run, stepKey }) &&
        this.peek("steps", account, toStepId(run, stepKey));
      return step ? [step] : [];
    }
    return this.#reads.historyIds({ account, run }).flatMap((id) => this.peek("steps", account, id) ?? []);
  }

  waitlist(waitlist: WaitlistHead): Iterable<MessageState> {
    return this.#reads.waitlist(waitlist, this.#isWaitlistStored(waitlist));
  }

  /** Reports whether the storage may have messages in a waitlist, as far as its loaded row shows. */
  #isWaitlistStored({ account, waitlist }: WaitlistHead): boolean {
    const gate = parseGate(waitlist);
    if (hasLimiter(gate)) {
      const limiter = this.#overlay.entry("limiters", [account, waitlist]);
      return limiter === undefined || !limiter.loaded || (limiter.before?.waiting ?? 0) > 0;
    }
    const row = this.#overlay.entry("hostWaitlists", [account, gate.name]);
    return row === undefined || !row.loaded || row.before !== undefined;
  }

  leasedByOthers = (need: LeasedNeed): readonly MessageState[] =>
    this.#readCurrent("messages", this.#reads.leasedByOthers(need));

  expired: Draft["expired"] = (need) => {
    const { deadLetterCount, ...found } = this.#reads.expired(need);
    const rows = selectStillExpired(found, {
      peek: (table, id) => this.peek(table, need.account, id),
      peekWithoutBody: (table, id) => this.#reads.knownWithoutBody(table, [need.account, id]),
      isUntouched: (table, row) => this.#overlay.isUntouched(table, row),
    });
    const change = this.effects.usage.sumSoFar(need.account, "deadLetters");
    return { ...rows, deadLetterCount: deadLetterCount + change };
  };

  #toNext(account: AccountId, host: string, size: number): NextDelivery {
    const owner = this.get("accounts", account);
    const isPulled = owner?.pulled !== undefined && findPulledOrigin(owner, host) !== undefined;
    return { lane: laneName(account, host), size, isPulled };
  }

  readonly capacity: NodeCapacity = {
    has: (...next) => this.#takenCapacity.hasCapacity(this.#toNext(...next)),
    mayKeepPlace: (account, host) => this.#takenCapacity.mayKeepPlace(laneName(account, host)),
    isDenied: (...denied) => this.#takenCapacity.isDenied(this.#toNext(...denied)),
    take: (...taken) => {
      const next = this.#toNext(...taken);
      const isFree = this.#takenCapacity.hasCapacity(next);
      if (isFree) this.#takenCapacity.take(next);
      return isFree;
    },
    loadBody: (message) => this.#reads.loadBody(message),
    hasBacklog: (account) => hasBacklog(this.#capacity, account),
    isNewcomer: (account, host) => this.#takenCapacity.isNewcomer(laneName(account, host)),
  };

  hasChanged = (): boolean => this.#undo.hasChanged();
  record: Draft["record"] = (name, late) =>
    this.effects.add(this.effects.activities, late === undefined ? { name } : { name, late });
  fault = (message: string): void => this.effects.add(this.effects.faults, message);
  deliver = (delivery: Delivery): void => this.effects.add(this.effects.deliveries, delivery);
  abort = (lease: LeaseRef): void => this.effects.add(this.effects.abortedLeases, lease);
  abortElsewhere = (): void => this.effects.add(this.effects.abortedElsewhere, true);
  settled = (lease: LeaseRef): void => this.effects.add(this.effects.settledLeases, lease);

  /** Like `Overlay.set`; also notes the messages that were held, which may have left their waitlist. */
  #set<T extends TableName>(table: T, key: Key, row: Rows[T] | undefined): Rows[T] | undefined {
    const before = this.#overlay.set(table, key, row);
    if (before && "state" in before && before.state === "held") this.#leftWaitlist.push(before);
    return before;
  }

  #updateTags(account: AccountId, before: readonly string[], now: readonly string[]): void {
    for (const id of before) if (!now.includes(id)) this.#set("tags", [account, id], undefined);
    for (const id of now) if (!before.includes(id)) this.#set("tags", [account, id], { account, id });
  }

  /** Returns the tags that go with a row. */
  #listTags<T extends TableName>(table: T, key: Key): readonly string[] {
    const row = this.#overlay.get(table, key);
    if (row) return makeTagIds[table]?.(row) ?? [];
    const deadLetter = table === "deadLetters" ? this.#reads.knownWithoutBody("deadLetters", key) : undefined;
    return (deadLetter && makeTagIds.deadLetters?.({ ...deadLetter, body: noBytes })) ?? [];
  }

  /**
   * Removes the messages that the command has taken out of their waitlists from there. Without this, each of
   * a hundred outcomes of one host would skip the messages that the others have sent.
   */
  #leaveWaitlists(): void {
    for (const message of this.#leftWaitlist)
      if (this.#findWaitlist(message) !== message.waitlist) this.#reads.waitlistHeads.leave(message);
  }

  #findWaitlist = ({ account, id }: MessageState): string | null | undefined =>
    this.peek("messages", account, id)?.waitlist;

  /** Returns loaded rows as they are now, without those that no longer exist. */
  #readCurrent<T extends "messages" | "limiters" | "schedules" | "waiters">(
    table: T,
    rows: readonly Rows[T][],
  ): Rows[T][] {
    return rows.flatMap(({ account, id }) => this.peek(table, account, id) ?? []);
  }
}
