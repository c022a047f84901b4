import type {
  BodyTableName,
  CountNeed,
  DueNeed,
  DueRows,
  ExpiredNeed,
  ExpiredRows,
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
import { RetryInNextBatch } from "../../core/values/errors.ts";
import { readQuotaRange, toQuotaName } from "../../core/sending/quotas.ts";
import type { AccountId, MessageId, MessageState, Millis, WithoutBody } from "../../core/model/message.ts";
import { toKey } from "../queries/keys.ts";
import { listTables } from "../store.ts";
import { BodiesToLoad } from "./bodiesToLoad.ts";
import { HistoryBytes } from "./historyBytes.ts";
import { KeyMap } from "./keyMap.ts";
import type { Loader } from "./loader.ts";
import type { Overlay } from "./overlay.ts";
import { QuotaCounts } from "./quotaCounts.ts";
import type { UndoLog } from "./undoLog.ts";
import { WaitlistHeads } from "./waitlistHeads.ts";
import type { Own } from "./wantedReads.ts";
import { addKey, WantedReads } from "./wantedReads.ts";

type RowsWithoutBody = { [T in BodyTableName]: KeyMap<WithoutBody<Rows[T]> | undefined> };

/** A list that was read for one command of the batch, and that no other command may use. */
type OwnList<List> = { command: number; list: List };

/**
 * Reads stored rows for the decisions of a batch. A store that can read a row at once does so. Everything
 * else that is not loaded is noted, `isMissing` becomes true, and the decision continues as if it did not
 * exist, to find out what else it reads. Its changes are then discarded, `loadWanted` loads all that is
 * missing, and the decision runs again.
 */
export class BatchReads {
  readonly quotaCounts: QuotaCounts;
  readonly bodiesToLoad: BodiesToLoad;
  readonly waitlistHeads = new WaitlistHeads();
  /** Whether the running command has looked for something that is not loaded. */
  isMissing = false;
  /** The number of the running command in the batch. */
  command = 0;
  readonly #historyBytes: HistoryBytes;
  readonly #expired = new Map<AccountId, OwnList<ExpiredRows>>();
  #due: (OwnList<DueRows> & { at: Millis }) | null = null;
  #leasedByOthers: OwnList<readonly MessageState[]> | null = null;
  /** Rows that were read without their bodies. They are never written. */
  readonly #rowsWithoutBody: RowsWithoutBody = {
    storedMessages: new KeyMap(),
    deadLetters: new KeyMap(),
    notifications: new KeyMap(),
    steps: new KeyMap(),
  };
  readonly #overlay: Overlay;
  readonly #loader: Loader;
  /** Whether anything but stored messages to send is missing. */
  #isOtherMissing = false;
  #wanted = new WantedReads();

  /**
   * `bytes`: the maximum number of body bytes that one batch loads to send. `isAlone`: the batch has only one
   * command.
   */
  constructor(
    overlay: Overlay,
    loader: Loader,
    { undo, bytes, isAlone }: { undo: UndoLog; bytes: number; isAlone: boolean },
  ) {
    this.#overlay = overlay;
    this.#loader = loader;
    this.quotaCounts = new QuotaCounts(undo);
    this.bodiesToLoad = new BodiesToLoad(bytes);
    this.#historyBytes = new HistoryBytes({ isAlone });
  }

  /** Returns a row as the batch has left it. */
  row<T extends TableName>(table: T, key: Key): Rows[T] | undefined {
    const entry = this.#overlay.entry(table, key);
    if (entry) return entry.now;
    if (table === "storedMessages" && this.#wanted.bodies.has(key)) return undefined;
    if (!this.#loader.rowNow) return this.#miss(() => addKey(this.#wanted.rows, table, key));
    const row = this.#loader.rowNow(table, key);
    if (row === undefined) this.#overlay.addAbsent(table, key);
    else this.#overlay.addLoaded(table, row);
    return row;
  }

  /** Returns a row, of which the body is missing unless the row was read with it. */
  rowWithoutBody<T extends BodyTableName>(table: T, key: Key): WithoutBody<Rows[T]> | undefined {
    const entry = this.#overlay.entry(table, key);
    if (entry) return entry.now;
    const rows: KeyMap<WithoutBody<Rows[T]> | undefined> = this.#rowsWithoutBody[table];
    if (rows.has(key)) return rows.get(key);
    if (!this.#loader.rowNow) return this.#miss(() => addKey(this.#wanted.withoutBodies, table, key));
    const row = this.#loader.rowNow(table, key, { bodies: false });
    rows.set(key, row);
    return row;
  }

  /** Returns what is known of a row without its body, and reads nothing. */
  knownWithoutBody<T extends BodyTableName>(table: T, key: Key): WithoutBody<Rows[T]> | undefined {
    const entry = this.#overlay.entry(table, key);
    const rows: KeyMap<WithoutBody<Rows[T]> | undefined> = this.#rowsWithoutBody[table];
    return entry ? entry.now : rows.get(key);
  }

  /** Returns due rows as they were found, and the time at which they were due. */
  due(need: DueNeed): DueRows & { at: Millis } {
    if (this.#due && this.#due.command !== this.command) throw new RetryInNextBatch();
    if (this.#due) return { ...this.#due.list, at: this.#due.at };
    return this.#miss(() => (this.#wanted.due ??= { command: this.command, need }), { ...nothingDue, at: 0 });
  }

  leasedByOthers(need: LeasedNeed): readonly MessageState[] {
    const own = this.#leasedByOthers;
    if (own && own.command !== this.command) throw new RetryInNextBatch();
    return (
      own?.list ?? this.#miss(() => (this.#wanted.leasedByOthers ??= { command: this.command, need }), none)
    );
  }

  expired(need: ExpiredNeed): ExpiredRows {
    const own = this.#expired.get(need.account);
    if (own && own.command !== this.command) throw new RetryInNextBatch();
    return own?.list ?? this.#miss(() => this.#wantExpired(need), nothingExpired);
  }

  /** Returns the ids of a run's rows in one table. */
  runRowIds(need: RunRowsNeed): readonly string[] {
    if (!this.#overlay.runIndex.wereRowsAsked(need))
      return this.#miss(() => this.#wanted.runRows.push(need), none);
    return this.#overlay.runIndex.listIds(need.table, need);
  }

  /** Returns the ids of the entries of a history. */
  historyIds(need: RunNeed): readonly string[] {
    return this.hasHistory(need) ? this.#overlay.runIndex.listIds("steps", need) : none;
  }

  /** Reports whether a history, or one entry of it, is loaded. */
  hasHistory(need: StepsNeed): boolean {
    if (this.#historyBytes.isSkipped(need)) throw new RetryInNextBatch();
    return (
      this.#overlay.runIndex.wasHistoryAsked(need) || this.#miss(() => this.#wanted.steps.push(need), false)
    );
  }

  keptLogIds(account: AccountId, messageId: MessageId): readonly string[] {
    const key = [account, messageId] as const;
    if (!this.#overlay.keptEntries.wasAsked(key))
      return this.#miss(() => this.#wanted.keptLog.push(key), none);
    return this.#overlay.keptEntries.listIds(account, messageId);
  }

  readQuotaCount(need: CountNeed): number {
    return this.quotaCounts.readCount(need) ?? this.#miss(() => this.#wanted.quotaCounts.push(need), 0);
  }

  /**
   * Yields the messages that are still in a waitlist. `limit` more of them are loaded when the known ones
   * end.
   */
  *waitlistHead({ account, waitlist, limit }: WaitlistHead, isWhole: boolean): Generator<MessageState> {
    for (const id of this.waitlistHeads.listIds(account, waitlist)) {
      const state = this.#overlay.get("messages", [account, id]);
      if (state?.waitlist !== waitlist) continue;
      yield state;
    }
    if (isWhole) return;
    const requested = this.waitlistHeads.requested(account, waitlist);
    this.#miss(() => this.#wanted.heads.push({ account, waitlist, limit: requested + limit }));
  }

  /**
   * Loads the stored message of a message to send. Returns false if the bytes of the batch do not allow it.
   * While anything but stored messages is missing, nothing is loaded, because it may turn out that the
   * message is not sent.
   */
  loadBody(message: MessageState): boolean {
    const key = [message.account, message.id] as const;
    if (this.#overlay.entry("storedMessages", key) || this.#wanted.bodies.has(key)) return true;
    if (this.#isOtherMissing || this.bodiesToLoad.selectKeys([message], () => false).length === 0)
      return false;
    if (this.#loader.rowNow) this.row("storedMessages", key);
    else this.#wantBody(key);
    return true;
  }

  /** Loads the rows of hints. */
  async loadHints(hints: readonly Hint[]): Promise<void> {
    const keys: { [T in TableName]?: Key[] } = {};
    for (const hint of hints)
      for (const table of listTables(hint)) (keys[table] ??= []).push(...(hint[table] ?? none));
    await Promise.all(this.#loadRows(keys));
  }

  /** Loads everything that was missing. */
  async loadWanted(now: Millis): Promise<void> {
    const wanted = this.#wanted;
    this.#wanted = new WantedReads();
    // PostgreSQL locks rows in the order of these statements, so the order must be the same in every batch.
    await Promise.all([
      ...this.#loadRows(wanted.rows),
      ...this.#loadLists(wanted, now),
      ...this.#loadHistories(wanted),
      ...this.#loadRowsWithoutBody(wanted.withoutBodies),
    ]);
  }

  #miss(note: () => unknown): undefined;
  #miss<T>(note: () => unknown, nothing: T): T;
  #miss<T>(note: () => unknown, nothing?: T): T | undefined {
    note();
    this.isMissing = true;
    this.#isOtherMissing = true;
    return nothing;
  }

  #wantBody(key: Key): void {
    this.#wanted.bodies.set(key, true);
    addKey(this.#wanted.rows, "storedMessages", key);
    this.isMissing = true;
  }

  /** Begins the command with this number in the batch. */
  begin(command: number): void {
    this.command = command;
    this.isMissing = false;
    this.#isOtherMissing = false;
  }

  #wantExpired(need: ExpiredNeed): void {
    const isWanted = this.#wanted.expired.some((one) => one.need.account === need.account);
    if (!isWanted) this.#wanted.expired.push({ command: this.command, need });
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
      const missing = unknown.filter((key) => !this.#rowsWithoutBody[table].has(key));
      return missing.length === 0 ? [] : [this.#loadTableWithoutBody(table, missing)];
    });
  }

  async #loadTableWithoutBody<T extends BodyTableName>(table: T, keys: readonly Key[]): Promise<void> {
    const rows: KeyMap<WithoutBody<Rows[T]> | undefined> = this.#rowsWithoutBody[table];
    const found = await this.#loader.rows(table, keys, { bodies: false });
    for (const key of keys) rows.set(key, undefined);
    for (const row of found) rows.set(toKey[table](row), row);
  }

  #loadLists({ due, leasedByOthers, heads, quotaCounts }: WantedReads, now: Millis): Promise<void>[] {
    const loads: Promise<void>[] = [];
    if (due) loads.push(this.#loadDue(due, now));
    if (heads.length > 0) loads.push(this.#loadHeads(this.waitlistHeads.merge(heads)));
    if (leasedByOthers) loads.push(this.#loadLeased(leasedByOthers));
    const unknown = this.quotaCounts.pickUnknown(quotaCounts);
    if (unknown.length > 0) loads.push(this.#loadCounts(unknown));
    return loads;
  }

  async #loadDue({ command, need }: Own<DueNeed>, now: Millis): Promise<void> {
    const due = await this.#loader.due(now, need);
    for (const table of dueTables) this.#addAllLoaded(table, due[table]);
    this.#due = { command, list: due, at: now };
  }

  async #loadLeased({ command, need }: Own<LeasedNeed>): Promise<void> {
    const list = await this.#loader.leasedByOthers(need);
    this.#addAllLoaded("messages", list);
    this.#leasedByOthers = { command, list };
  }

  /** Loads waitlists, and adds the messages that the batch has put into them. */
  async #loadHeads(heads: readonly WaitlistHead[]): Promise<void> {
    const found = await this.#loader.waitlistHeads(heads);
    this.#addAllLoaded("messages", found);
    this.waitlistHeads.record(heads, found);
    for (const { now } of this.#overlay.changes("messages"))
      if (now?.state === "held" && this.waitlistHeads.isWhole(now.account, now.waitlist ?? "") === true)
        this.waitlistHeads.join(now);
  }

  /** Loads counts, and adds the rows that the batch has created or removed. */
  async #loadCounts(needs: readonly CountNeed[]): Promise<void> {
    const counts = await this.#loader.quotaCounts(needs);
    const changed = needs.map(({ account, name }) =>
      this.#overlay.changes(readQuotaRange(name).table).reduce((sum, { key, before, now }) => {
        if (key[0] !== account || toQuotaName(readQuotaRange(name).table, key[1] ?? "") !== name) return sum;
        return sum + (now === undefined ? 0 : 1) - (before === undefined ? 0 : 1);
      }, 0),
    );
    this.quotaCounts.record(
      needs,
      counts.map((count, at) => count + (changed[at] ?? 0)),
    );
  }

  #loadHistories({ runRows, keptLog, steps, expired }: WantedReads): Promise<void>[] {
    const loads: Promise<void>[] = [];
    const runNeeds = this.#overlay.runIndex.pickUnaskedRows(runRows);
    if (runNeeds.length > 0) loads.push(this.#loadRunRows(runNeeds));
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
    for (const row of list.deadLetters) this.#rowsWithoutBody.deadLetters.set([row.account, row.id], row);
  }

  async #loadRunRows(needs: readonly RunRowsNeed[]): Promise<void> {
    const found = await this.#loader.runRows(needs);
    for (const table of ["messages", "waiters"] as const) this.#addAllLoaded(table, found[table]);
    this.#addWithoutBody("notifications", found.notifications);
    this.#addWithoutBody("steps", found.steps);
  }

  #addWithoutBody<T extends "notifications" | "steps">(
    table: T,
    rows: readonly (WithoutBody<Rows[T]> & RunNeed & { id: string })[],
  ): void {
    const withoutBody: KeyMap<WithoutBody<Rows[T]> | undefined> = this.#rowsWithoutBody[table];
    for (const row of rows) {
      withoutBody.set([row.account, row.id], row);
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

const none: readonly never[] = [];
const nothingDue: DueRows = {
  messages: none,
  hostWaitlists: none,
  limiters: none,
  schedules: none,
  waiters: none,
  turns: {},
};
const nothingExpired: ExpiredRows = {
  log: none,
  keptLog: none,
  deadLetters: none,
  deduplications: none,
  audit: none,
  runs: none,
  steps: none,
  usage: none,
  timeIndex: none,
};
const bodyTables = ["storedMessages", "deadLetters", "notifications", "steps"] as const;
const dueTables = ["messages", "hostWaitlists", "limiters", "schedules", "waiters"] as const;
const expiringTables = [
  "log",
  "keptLog",
  "deduplications",
  "audit",
  "runs",
  "steps",
  "usage",
  "timeIndex",
] as const;
