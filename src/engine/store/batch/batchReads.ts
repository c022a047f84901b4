import type {
  BodyAdmission,
  BodyTableName,
  CountNeed,
  DueNeed,
  DueRows,
  Expired,
  ExpiredNeed,
  Hint,
  Key,
  LeasedNeed,
  Rows,
  RunNeed,
  RunRowsNeed,
  StepsNeed,
  TableName,
  WaitlistHead,
} from "../../core/decision/command.ts";
import { listGateRows } from "../../core/admission/hints.ts";
import type { AccountId, Millis } from "../../core/values/basics.ts";
import type { MessageState } from "../../core/model/messageState.ts";
import type { WithoutBody } from "../../core/model/message.ts";
import { toKey } from "../catalog/rowKeys.ts";
import { listTables } from "../catalog/order.ts";
import { BodiesToLoad } from "./bodiesToLoad.ts";
import { HistoryBytes } from "./historyBytes.ts";
import type { BatchOptions, LoadedRunRows, Loader } from "./loader.ts";
import { isCreated, type Overlay } from "./overlay.ts";
import { type OwnList, readOwnList, RetryInNextBatch } from "./ownList.ts";
import { QuotaCounts } from "./quotaCounts.ts";
import { RowsWithoutBody } from "./rowsWithoutBody.ts";
import { UsedRunIds } from "./usedRunIds.ts";
import type { UndoLog } from "./undoLog.ts";
import { WaitlistHeads } from "./waitlistHeads.ts";
import {
  addKey,
  bodyTables,
  dueTables,
  expiringTables,
  none,
  nothingDue,
  nothingExpired,
  type Own,
  WantedReads,
} from "./wantedReads.ts";

/**
 * Reads stored rows for the decisions of a batch. A store that can read a row at once does so. Everything
 * else that is not loaded is noted, and `isMissing` becomes true. The decision and those behind it continue
 * as if it did not exist, to find out what else they read. Their changes are then discarded, `loadWanted`
 * loads all that is missing, and they run again.
 */
export class BatchReads {
  readonly quotaCounts: QuotaCounts;
  readonly bodiesToLoad: BodiesToLoad;
  readonly waitlistHeads: WaitlistHeads;
  /** Whether a command of this round has looked for something that is not loaded. */
  isMissing = false;
  /** Whether the running command has come to the end of what is loaded of a waitlist. */
  isWaitlistMissing = false;
  /** The first read that the storage failed to answer. The batch must end. */
  failure: { error: unknown } | null = null;
  #command = 0;
  readonly #historyBytes: HistoryBytes;
  readonly #expired = new Map<AccountId, OwnList<Expired>>();
  #due: OwnList<DueRows & { at: Millis }> | null = null;
  #leasedByOthers: OwnList<readonly MessageState[]> | null = null;
  readonly #rowsWithoutBody = new RowsWithoutBody();
  readonly #usedRunIds = new UsedRunIds();
  readonly #overlay: Overlay;
  readonly #loader: Loader;
  readonly #usesRowHints: boolean;
  /** Whether anything but stored messages to send is missing. */
  #isOtherMissing = false;
  #missing = new WantedReads();
  /** The messages of this round that will come to their gates. */
  #atGates: readonly Key[] = none;

  /** `bytes`: the maximum number of body bytes that one batch loads to send. */
  constructor(
    overlay: Overlay,
    loader: Loader,
    { undo, bytes, isAlone, usesHints }: BatchOptions & { undo: UndoLog; bytes: number },
  ) {
    this.#overlay = overlay;
    this.#loader = loader;
    // Rows that can be read at once need no hints.
    this.#usesRowHints = usesHints && loader.now === null;
    this.waitlistHeads = new WaitlistHeads(undo);
    this.quotaCounts = new QuotaCounts(undo);
    this.bodiesToLoad = new BodiesToLoad(bytes, undo);
    this.#historyBytes = new HistoryBytes({ isAlone });
  }

  /** Returns a row as the batch has left it. */
  row<T extends TableName>(table: T, key: Key): Rows[T] | undefined {
    const entry = this.#overlay.entry(table, key);
    if (entry) return entry.now;
    if (table === "storedMessages" && this.bodiesToLoad.isMissing(key))
      return this.bodiesToLoad.expect(key) as Rows[T] | undefined;
    const { now } = this.#loader;
    if (!now) return this.#miss(() => addKey(this.#missing.rows, table, key));
    const row = this.#readNow(() => now.row(table, key));
    if (row === undefined) this.#overlay.addAbsent(table, key);
    else this.#overlay.addLoaded(table, row);
    return row;
  }

  /** Returns a row, of which the body is missing unless the row was read with it. */
  rowWithoutBody<T extends BodyTableName>(table: T, key: Key): WithoutBody<Rows[T]> | undefined {
    const entry = this.#overlay.entry(table, key);
    if (entry) return entry.now;
    if (this.#rowsWithoutBody.has(table, key)) return this.#rowsWithoutBody.get(table, key);
    const { now } = this.#loader;
    if (!now) return this.#miss(() => addKey(this.#missing.withoutBodies, table, key));
    const row = this.#readNow(() => now.row(table, key, { bodies: false }));
    if (row === undefined) this.#rowsWithoutBody.addAbsent(table, key);
    else this.#rowsWithoutBody.add(table, row);
    return row;
  }

  #readNow<T>(read: () => T): T {
    try {
      return read();
    } catch (error) {
      this.failure ??= { error };
      throw error;
    }
  }

  /** Returns what is known of a row without its body, and reads nothing. */
  knownWithoutBody<T extends BodyTableName>(table: T, key: Key): WithoutBody<Rows[T]> | undefined {
    const entry = this.#overlay.entry(table, key);
    return entry ? entry.now : this.#rowsWithoutBody.get(table, key);
  }

  /** Returns due rows as they were found, and the time at which they were due. */
  due(need: DueNeed): DueRows & { at: Millis } {
    const want = (): unknown => (this.#missing.due ??= { command: this.#command, need });
    return readOwnList(this.#due, this.#command) ?? this.#miss(want, { ...nothingDue, at: 0 });
  }

  leasedByOthers(need: LeasedNeed): readonly MessageState[] {
    const want = (): unknown => (this.#missing.leasedByOthers ??= { command: this.#command, need });
    return readOwnList(this.#leasedByOthers, this.#command) ?? this.#miss(want, none);
  }

  expired(need: ExpiredNeed): Expired {
    const want = (): void => this.#missing.addExpired({ command: this.#command, need });
    return readOwnList(this.#expired.get(need.account), this.#command) ?? this.#miss(want, nothingExpired);
  }

  /** Returns the ids of a run's rows in one table. */
  runRowIds(need: RunRowsNeed): readonly string[] {
    const { runIndex } = this.#overlay;
    const { now } = this.#loader;
    if (!now && !runIndex.wereRowsAsked(need))
      return this.#miss(() => this.#missing.runRows.push(need), none);
    if (now && runIndex.pickUnaskedRows([need]).length > 0)
      this.#addRunRows(this.#readNow(() => now.runRows(need)));
    return runIndex.listIds(need.table, need);
  }

  /** Returns the ids of the entries of a history. */
  historyIds(need: RunNeed): readonly string[] {
    return this.hasHistory(need) ? this.#overlay.runIndex.listIds("steps", need) : none;
  }

  /** Reports whether a history, or one entry of it, is loaded. */
  hasHistory(need: StepsNeed): boolean {
    if (this.#historyBytes.isSkipped(need)) throw new RetryInNextBatch();
    return (
      this.#overlay.runIndex.wasHistoryAsked(need) || this.#miss(() => this.#missing.steps.push(need), false)
    );
  }

  keptLogIds(message: Key): readonly string[] {
    const { keptEntries } = this.#overlay;
    return keptEntries.wasAsked(message)
      ? keptEntries.listIds(message)
      : this.#miss(() => this.#missing.keptLog.push(message), none);
  }

  wasRunIdUsed(key: Key): boolean {
    return this.#usedRunIds.find(key) ?? this.#miss(() => this.#missing.runIds.push(key), false);
  }

  readQuotaCount(need: CountNeed): number {
    const count = this.quotaCounts.read(need);
    return typeof count === "number" ? count : this.#miss(() => this.#missing.quotaCounts.push(count), 0);
  }

  /**
   * Yields the messages that are still in a waitlist: first the stored ones that the batch has not changed,
   * and then those that it has put there. `limit` more are loaded when the known stored ones end. `isStored`:
   * whether the storage has any.
   */
  *waitlist({ account, waitlist, limit }: WaitlistHead, isStored: boolean): Generator<MessageState> {
    const known = this.waitlistHeads.find(account, waitlist);
    for (const id of known.stored) {
      const state = this.#overlay.get("messages", [account, id]);
      if (state?.waitlist === waitlist && this.#overlay.isUntouched("messages", state)) yield state;
    }
    if (isStored && !known.isWhole) {
      this.#miss(() => this.#missing.waitlists.push({ account, waitlist, limit }));
      this.isWaitlistMissing = true;
      return;
    }
    for (const id of known.joined) {
      const state = this.#overlay.get("messages", [account, id]);
      if (state?.waitlist === waitlist && !this.#overlay.isUntouched("messages", state)) yield state;
    }
  }

  /**
   * Loads the stored message of a message to send, if the bytes of the batch allow it. While anything but
   * stored messages is missing, nothing is loaded, because it may turn out that the message is not sent.
   */
  loadBody(message: MessageState): BodyAdmission {
    const key = [message.account, message.id] as const;
    const entry = this.#overlay.entry("storedMessages", key);
    if (entry && isCreated(entry)) return "loaded";
    const admission = this.bodiesToLoad.select(message);
    if (admission !== "loaded" || entry || this.bodiesToLoad.isMissing(key)) return admission;
    if (this.#loader.now) this.row("storedMessages", key);
    else {
      this.bodiesToLoad.addMissing(key);
      if (!this.#isOtherMissing) {
        addKey(this.#missing.rows, "storedMessages", key);
        this.#missing.bodyBytes += message.size;
      }
      this.isMissing = true;
    }
    return admission;
  }

  /**
   * Loads the rows of hints, or notes them if `loadWanted` must load them. Due rows can be loaded only when
   * the time is known, and no other rows should be locked before.
   */
  async loadHints(hints: readonly Own<Hint>[]): Promise<void> {
    const { rows, runIds } = this.#missing;
    for (const { command, need: hint } of hints) {
      if (hint.due) this.#missing.due ??= { command, need: hint.due };
      if (hint.runIds) runIds.push(...hint.runIds);
      if (!this.#usesRowHints) continue;
      for (const table of listTables(hint)) (rows[table] ??= []).push(...(hint[table] ?? none));
    }
    this.#atGates = rows.messages ?? none;
    this.isMissing = this.#missing.due !== null || this.#atGates.length > 0;
    if (this.#missing.due === null)
      await Promise.all([...this.#loadRows(rows), this.#usedRunIds.load(runIds, this.#loader)]);
  }

  /** The bytes of the bodies that `loadWanted` will load for messages to send. */
  get bodyBytesToLoad(): number {
    return this.#missing.bodyBytes;
  }

  /** Loads everything that was missing. */
  async loadWanted(now: Millis): Promise<void> {
    const missing = this.#missing;
    this.#missing = new WantedReads();
    this.isMissing = false;
    this.#isOtherMissing = false;
    // PostgreSQL locks rows in the order of these statements, so the order must be the same in every batch.
    await Promise.all([
      ...this.#loadRows(missing.rows),
      ...this.#loadLists(missing, now),
      ...this.#loadHistories(missing),
      this.#usedRunIds.load(missing.runIds, this.#loader),
      ...this.#loadRowsWithoutBody(missing.withoutBodies),
    ]);
    if (this.#usesRowHints && this.#atGates.length > 0) await this.#loadGateRows();
    this.bodiesToLoad.endRound(missing.rows.storedMessages ?? none, this.#overlay);
  }

  /** Begins the command with this number in the batch. */
  begin(command: number): void {
    this.#command = command;
    this.isWaitlistMissing = false;
  }

  #miss(note: () => unknown): undefined;
  #miss<T>(note: () => unknown, nothing: T): T;
  #miss<T>(note: () => unknown, nothing?: T): T | undefined {
    note();
    this.isMissing = true;
    this.#isOtherMissing = true;
    return nothing;
  }

  #loadRows(keys: { readonly [T in TableName]?: readonly Key[] }): Promise<void>[] {
    return listTables(keys).flatMap((table) => {
      const missing = this.#overlay.missing(table, keys[table] ?? none);
      return missing.length === 0 ? [] : [this.#loadTable(table, missing)];
    });
  }

  async #loadTable<T extends TableName>(table: T, keys: readonly Key[]): Promise<void> {
    for (const row of await this.#loader.rows(table, keys)) this.#overlay.addLoaded(table, row);
    for (const key of keys) this.#overlay.addAbsent(table, key);
  }

  #loadRowsWithoutBody(keys: { readonly [T in BodyTableName]?: readonly Key[] }): Promise<void>[] {
    return bodyTables.flatMap((table) => {
      const unknown = this.#overlay.missing(table, keys[table] ?? none);
      const missing = unknown.filter((key) => !this.#rowsWithoutBody.has(table, key));
      return missing.length === 0 ? [] : [this.#loadTableWithoutBody(table, missing)];
    });
  }

  async #loadTableWithoutBody(table: BodyTableName, keys: readonly Key[]): Promise<void> {
    for (const key of keys) this.#rowsWithoutBody.addAbsent(table, key);
    for (const row of await this.#loader.rows(table, keys, { bodies: false }))
      this.#rowsWithoutBody.add(table, row);
  }

  #loadLists({ due, leasedByOthers, waitlists, quotaCounts }: WantedReads, now: Millis): Promise<void>[] {
    return [
      ...(due ? [this.#loadDue(due, now)] : none),
      ...(waitlists.length > 0 ? [this.#loadHeads(this.waitlistHeads.merge(waitlists))] : none),
      ...(leasedByOthers ? [this.#loadLeased(leasedByOthers)] : none),
      ...(quotaCounts.length > 0 ? [this.#loadCounts(this.quotaCounts.merge(quotaCounts))] : none),
    ];
  }

  async #loadDue({ command, need }: Own<DueNeed>, now: Millis): Promise<void> {
    const due = await this.#loader.due(now, need);
    for (const table of dueTables) this.#addAllLoaded(table, due[table]);
    this.#due = { command, list: { ...due, at: now } };
    this.#noteAtGates(due.messages);
  }

  async #loadLeased({ command, need }: Own<LeasedNeed>): Promise<void> {
    const list = await this.#loader.leasedByOthers(need);
    this.#addAllLoaded("messages", list);
    this.#leasedByOthers = { command, list };
  }

  async #loadHeads(heads: readonly WaitlistHead[]): Promise<void> {
    const found = await this.#loader.waitlistHeads(heads);
    this.#addAllLoaded("messages", found);
    this.waitlistHeads.record(heads, found);
    this.#noteAtGates(found);
  }

  #noteAtGates(states: readonly MessageState[]): void {
    this.#atGates = this.#atGates.concat(states.map(toKey.messages));
  }

  /**
   * Loads the rows of all gates of messages that will move, so that these rows are locked in the order of
   * their keys, and not in that of the messages.
   */
  async #loadGateRows(): Promise<void> {
    const states = this.#atGates.flatMap((key) => this.#overlay.get("messages", key) ?? []);
    this.#atGates = none;
    await Promise.all(this.#loadRows(listGateRows(states, (id) => this.#overlay.get("accounts", [id]))));
  }

  async #loadCounts(needs: readonly CountNeed[]): Promise<void> {
    this.quotaCounts.record(needs, await this.#loader.quotaCounts(needs), this.#overlay);
  }

  #loadHistories({ runRows, keptLog, steps, expired }: WantedReads): Promise<void>[] {
    const loads: Promise<void>[] = [];
    const runNeeds = this.#overlay.runIndex.pickUnaskedRows(runRows);
    if (runNeeds.length > 0)
      loads.push(this.#loader.runRows(runNeeds).then((found) => this.#addRunRows(found)));
    const keptLogKeys = this.#overlay.keptEntries.pickUnasked(keptLog);
    if (keptLogKeys.length > 0)
      loads.push(this.#loader.keptLog(keptLogKeys).then((rows) => this.#addAllLoaded("keptLog", rows)));
    const historyNeeds = this.#overlay.runIndex.pickUnaskedHistories(steps);
    if (historyNeeds.length > 0) loads.push(this.#loadSteps(historyNeeds));
    for (const need of expired) loads.push(this.#loadExpired(need));
    return loads;
  }

  async #loadExpired({ command, need }: Own<ExpiredNeed>): Promise<void> {
    const list = await this.#loader.expired(need);
    this.#expired.set(need.account, { command, list });
    for (const table of expiringTables) this.#addAllLoaded(table, list[table]);
    this.#addWithoutBody("deadLetters", list.deadLetters);
    this.#addWithoutBody("steps", list.steps);
  }

  #addRunRows(found: LoadedRunRows): void {
    this.#addAllLoaded("messages", found.messages);
    this.#addAllLoaded("waiters", found.waiters);
    this.#addWithoutBody("notifications", found.notifications);
    this.#addWithoutBody("steps", found.steps);
  }

  #addWithoutBody<T extends BodyTableName>(table: T, rows: readonly WithoutBody<Rows[T]>[]): void {
    for (const row of rows) {
      this.#rowsWithoutBody.add(table, row);
      this.#overlay.runIndex.add(table, row);
    }
  }

  async #loadSteps(needs: readonly StepsNeed[]): Promise<void> {
    const fitting = this.#historyBytes.pickFitting(needs, await this.#loader.stepSizes(needs));
    this.#addAllLoaded("steps", await this.#loader.steps(fitting));
  }

  #addAllLoaded<T extends TableName>(table: T, rows: readonly Rows[T][]): void {
    for (const row of rows) this.#overlay.addLoaded(table, row);
  }
}
