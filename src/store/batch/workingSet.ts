import type {
  Draft,
  Key,
  Needs,
  BodyTableName,
  Rows,
  RunRows,
  RunTableName,
  TableName,
} from "../../core/decision/command.ts";
import { RetryInNextBatch } from "../../core/values/errors.ts";
import type { DeliveryCapacity } from "../../core/admission/capacity.ts";
import { hasBacklog, laneName } from "../../core/admission/capacity.ts";
import { hasLimiter, parseGate } from "../../core/admission/gate.ts";
import { makeTagIds, retaggedTables } from "../../core/search/tags.ts";
import { readIndexInterval, listTimeIndexIds } from "../../core/search/timeIndex.ts";
import type { AccountId, Delivery, LeaseRef, MessageState, Millis } from "../../core/model/message.ts";
import type { Limiter, HostWaitlist } from "../../core/model/limiter.ts";
import type { WithoutBody, RunKey, Schedule } from "../../core/model/message.ts";
import { noBytes } from "../../core/model/message.ts";
import type { Step, Waiter } from "../../core/model/run.ts";
import { toStepId } from "../../core/model/stepId.ts";
import type { Turns } from "../../core/fairness/turns.ts";
import { toKey } from "../queries/keys.ts";
import { Effects } from "./effects.ts";
import type { Loader } from "./loader.ts";
import { NeedsLoader } from "./needsLoader.ts";
import type { Change } from "./overlay.ts";
import { Overlay } from "./overlay.ts";
import type { RecentTimeIndex, TimeIndexEntry } from "./recentTimeIndex.ts";
import { BatchCapacity } from "./takenCapacity.ts";
import { UndoLog } from "./undoLog.ts";

/**
 * The rows that the decisions of one batch read and change. The loader adds rows to the overlay, the overlay
 * holds the rows as the commands left them, and the undo log reverts a command that throws.
 */
export class WorkingSet implements Draft {
  readonly #undo = new UndoLog();
  readonly #overlay = new Overlay(this.#undo);
  readonly effects = new Effects(this.#undo);
  readonly #loaded: NeedsLoader;
  readonly #capacity: DeliveryCapacity;
  readonly #takenCapacity: BatchCapacity;
  readonly #isAlone: boolean;
  readonly #recentTimeIndex: RecentTimeIndex;
  /** Messages that the running command has taken out of a waitlist. */
  #leftWaitlist: MessageState[] = [];

  constructor(
    capacity: DeliveryCapacity,
    { isAlone, recentTimeIndex }: { isAlone: boolean; recentTimeIndex: RecentTimeIndex },
  ) {
    this.#loaded = new NeedsLoader(this.#overlay, {
      undo: this.#undo,
      bytes: capacity.bytes.perBatch,
      isAlone,
    });
    this.#capacity = capacity;
    this.#takenCapacity = new BatchCapacity(capacity);
    this.#isAlone = isAlone;
    this.#recentTimeIndex = recentTimeIndex;
  }

  /** Loads what is not loaded yet. Returns false if everything was loaded. */
  load(loader: Loader, needs: Needs, now: Millis): Promise<boolean> {
    return this.#loaded.load(loader, needs, now);
  }

  /** Runs one command: either all of its changes are made, or none if it throws. */
  runCommand<Answer>(run: () => Answer): Answer {
    this.#undo.begin();
    this.#leftWaitlist = [];
    try {
      const result = this.effects.usage.countDuring(run);
      // Without this, each of a hundred outcomes of one host would skip the messages that the others have
      // sent.
      for (const message of this.#leftWaitlist)
        if (this.#findWaitlist(message) !== message.waitlist) this.#loaded.waitlistHeads.leave(message);
      return result;
    } catch (error) {
      this.#undo.rollBack();
      throw error;
    }
  }

  /** Returns the tables whose rows were loaded or written. */
  listTouchedTables(): readonly TableName[] {
    return this.#overlay.listTouchedTables();
  }

  /** Returns the net changes of a table: the rows that differ from what the storage holds. */
  changes<T extends TableName>(table: T): readonly Change<Rows[T]>[] {
    return this.#overlay.changes(table);
  }

  get<T extends TableName>(table: T, ...key: Key): Rows[T] | undefined {
    return this.#overlay.get(table, key);
  }

  getWithoutBody<T extends BodyTableName>(table: T, ...key: Key): WithoutBody<Rows[T]> | undefined {
    const entry = this.#overlay.entry(table, key);
    return entry ? entry.now : this.#loaded.getWithoutBody(table, key);
  }

  put<T extends TableName>(table: T, row: Rows[T]): void {
    const key = toKey[table](row);
    const before = this.#set(table, key, row);
    if (before === undefined) this.#loaded.quotaCounts.change(table, key, 1);
    const toTagIds = makeTagIds[table];
    if (toTagIds && (before === undefined || retaggedTables.has(table)))
      this.#updateTags(key[0], before ? toTagIds(before) : [], toTagIds(row));
    if (table === "messages" && "state" in row && row.state === "held") this.#addToWaitlist(row);
  }

  drop(table: TableName, ...key: Key): void {
    for (const id of this.#listTags(table, key)) this.#set("tags", [key[0], id], undefined);
    if (this.#set(table, key, undefined) !== undefined) this.#loaded.quotaCounts.change(table, key, -1);
  }

  moveToKeptLog: Draft["moveToKeptLog"] = (row) => {
    this.#set("log", [row.account, row.id], undefined);
    this.#set("keptLog", [row.account, row.id], row);
  };

  listKeptLog: Draft["listKeptLog"] = (account, messageId) =>
    this.#overlay.keptEntries
      .listIds(account, messageId)
      .flatMap((id) => this.get("keptLog", account, id) ?? []);

  readQuotaCount: Draft["readQuotaCount"] = (account, name) =>
    this.#loaded.quotaCounts.readCount(account, name);

  indexTime: Draft["indexTime"] = (account, id, timeKeys) => {
    const entry: TimeIndexEntry = { account, at: readIndexInterval(id), timeKeys };
    if (this.#recentTimeIndex.has(entry)) return;
    if (this.#recentTimeIndex.isFull(entry, this.effects.newTimeIndexEntries.length))
      entry.timeKeys = undefined;
    if (this.#recentTimeIndex.has(entry)) return;
    const ids = listTimeIndexIds(entry.timeKeys, entry.at).filter(
      (name) => !this.get("timeIndex", account, name),
    );
    for (const name of ids) this.#set("timeIndex", [account, name], { account, id: name });
    if (ids.length > 0) this.effects.add(this.effects.newTimeIndexEntries, entry);
  };

  count: Draft["count"] = (account, counts) => this.effects.usage.count(account, counts);

  due(): readonly MessageState[] {
    const { messages, at } = this.#loaded.due;
    return this.#readCurrent(messages).filter(({ dueAt }) => dueAt !== null && dueAt <= at);
  }

  dueHostWaitlists(): readonly HostWaitlist[] {
    const { hostWaitlists: waitlists, at } = this.#loaded.due;
    return waitlists
      .flatMap((waitlist) => this.get("hostWaitlists", waitlist.account, waitlist.host) ?? [])
      .filter(({ dueAt }) => dueAt <= at);
  }

  dueLimiters = (): readonly Limiter[] => this.#listStillDue("limiters", this.#loaded.due.limiters);
  dueSchedules = (): readonly Schedule[] => this.#listStillDue("schedules", this.#loaded.due.schedules);
  dueWaiters = (): readonly Waiter[] => this.#listStillDue("waiters", this.#loaded.due.waiters);
  turns = (): Turns => this.#loaded.due.turns;

  listRunRows<T extends RunTableName>(table: T, account: AccountId, run: RunKey): readonly RunRows[T][] {
    const findRow = (table === "notifications" || table === "steps" ? this.getWithoutBody : this.get) as (
      ...key: unknown[]
    ) => RunRows[T] | undefined;
    const ids = this.#overlay.runIndex.listIds(table, { account, run });
    return ids.flatMap((id) => findRow.call(this, table, account, id) ?? []).filter((row) => row.run === run);
  }

  mayEndRun = (account: AccountId, run: RunKey): boolean =>
    this.#overlay.runIndex.wereRowsAsked({ account, run, table: "messages" });

  listSteps(account: AccountId, run: RunKey, stepKey?: string): readonly Step[] {
    const need = { account, run, ...(stepKey === undefined ? {} : { stepKey }) };
    if (this.#loaded.historyBytes.isSkipped(need)) throw new RetryInNextBatch();
    if (stepKey !== undefined) return [this.get("steps", account, toStepId(run, stepKey)) ?? []].flat();
    if (!this.#overlay.runIndex.wasHistoryAsked(need)) return [];
    return this.#overlay.runIndex
      .listIds("steps", need)
      .flatMap((id) => this.get("steps", account, id) ?? []);
  }

  waitlistHead(account: AccountId, waitlist: string): Iterable<MessageState> {
    return this.#loaded.waitlistHead(account, waitlist);
  }

  isWholeWaitlist(account: AccountId, waitlist: string): boolean {
    const isKnownWhole = this.#loaded.waitlistHeads.isWhole(account, waitlist);
    if (isKnownWhole !== undefined) return isKnownWhole;
    // A waitlist that the storage does not have is empty.
    const gate = parseGate(waitlist);
    if (hasLimiter(gate)) {
      const limiterEntry = this.#overlay.entry("limiters", [account, waitlist]);
      return (
        limiterEntry !== undefined &&
        limiterEntry.loaded &&
        (limiterEntry.before === undefined || limiterEntry.before.waiting === 0)
      );
    }
    const waitlistEntry = this.#overlay.entry("hostWaitlists", [account, gate.name]);
    return waitlistEntry !== undefined && waitlistEntry.loaded && waitlistEntry.before === undefined;
  }

  leasedByOthers = (): readonly MessageState[] => this.#readCurrent(this.#loaded.leasedByOthers);

  expired: Draft["expired"] = (account) =>
    this.#loaded.expirations.readExpired(account, this, (table, row) =>
      this.#overlay.isUntouched(table, row),
    );

  hasCapacity(account: AccountId, host: string): boolean {
    return this.#takenCapacity.hasCapacity(laneName(account, host));
  }

  isDenied = (account: AccountId, host: string): boolean =>
    this.#takenCapacity.isDenied(laneName(account, host));

  takeCapacity(account: AccountId, host: string, size: number): boolean {
    if (!this.hasCapacity(account, host)) return false;
    this.#undo.push(this.#takenCapacity.take(laneName(account, host), size));
    return true;
  }

  isBodyLoaded({ account, id }: Pick<MessageState, "account" | "id">): boolean {
    return this.#overlay.entry("storedMessages", [account, id]) !== undefined;
  }

  isNewcomer = (account: AccountId, host: string): boolean =>
    this.#takenCapacity.isNewcomer(laneName(account, host));
  isAlone = (): boolean => this.#isAlone;
  hasBacklog = (account: AccountId): boolean => hasBacklog(this.#capacity, account);
  hasChanged = (): boolean => !this.#undo.isEmpty();
  isOverByteShare = (message: Pick<MessageState, "account" | "host">): boolean =>
    this.#loaded.bodiesToLoad.isOverByteShare(message);
  fault = (message: string): void => this.effects.add(this.effects.faults, message);
  deliver = (delivery: Delivery): void => this.effects.add(this.effects.deliveries, delivery);
  abort = (lease: LeaseRef): void => this.effects.add(this.effects.abortedLeases, lease);

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
    const deadLetter = table === "deadLetters" ? this.getWithoutBody("deadLetters", ...key) : undefined;
    return (deadLetter && makeTagIds.deadLetters?.({ ...deadLetter, body: noBytes })) ?? [];
  }

  /**
   * Adds a held message to its waitlist, so that later commands of the batch see it. A message is not added
   * if messages before it have not been loaded.
   */
  #addToWaitlist(state: MessageState): void {
    if (state.waitlist !== null && this.isWholeWaitlist(state.account, state.waitlist))
      this.#loaded.waitlistHeads.join(state);
  }

  #findWaitlist = ({ account, id }: MessageState): string | null | undefined =>
    this.get("messages", account, id)?.waitlist;

  #listStillDue<T extends "limiters" | "schedules" | "waiters">(
    table: T,
    due: readonly Rows[T][],
  ): Rows[T][] {
    const rows = due.flatMap(({ account, id }) => this.get(table, account, id) ?? []);
    return rows.filter(({ dueAt }) => dueAt !== null && dueAt <= this.#loaded.due.at);
  }

  /** Returns loaded states as they are now, without removed ones. */
  #readCurrent(states: readonly MessageState[]): MessageState[] {
    return states.flatMap((state) => this.get("messages", state.account, state.id) ?? []);
  }
}
