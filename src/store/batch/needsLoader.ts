import type {
  Draft,
  DueNeed,
  ExpiredNeed,
  Key,
  WaitlistHead,
  Needs,
  RunRowsNeed,
  BodyTableName,
  Rows,
  RunNeed,
  StepsNeed,
  TableName,
} from "../../core/decision/command.ts";
import type { AccountId, MessageState, Millis, WithoutBody } from "../../core/model/message.ts";
import { toKey } from "../queries/keys.ts";
import { listTables } from "../store.ts";
import { BodiesToLoad } from "./bodiesToLoad.ts";
import { Expirations } from "./expirations.ts";
import { HistoryBytes } from "./historyBytes.ts";
import { KeyMap } from "./keyMap.ts";
import type { DueRows, Loader } from "./loader.ts";
import type { Overlay } from "./overlay.ts";
import { QuotaCounts } from "./quotaCounts.ts";
import type { UndoLog } from "./undoLog.ts";
import { WaitlistHeads } from "./waitlistHeads.ts";

type RowsWithoutBody = { [T in BodyTableName]: KeyMap<WithoutBody<Rows[T]> | undefined> };

/**
 * Loads what the decisions of a batch need, each row once. Rows are added to the overlay. Lists, counts and
 * rows without their bodies are kept here as they were read.
 */
export class NeedsLoader {
  readonly waitlistHeads = new WaitlistHeads();
  readonly quotaCounts: QuotaCounts;
  readonly expirations = new Expirations();
  readonly bodiesToLoad: BodiesToLoad;
  readonly historyBytes: HistoryBytes;
  due: DueRows & { at: Millis } = {
    at: 0,
    messages: [],
    hostWaitlists: [],
    limiters: [],
    schedules: [],
    waiters: [],
    turns: {},
  };
  leasedByOthers: readonly MessageState[] = [];
  /** Rows that were read without their bodies. Such a row is never written. */
  readonly #rowsWithoutBody: RowsWithoutBody = {
    storedMessages: new KeyMap(),
    deadLetters: new KeyMap(),
    notifications: new KeyMap(),
    steps: new KeyMap(),
  };
  readonly #overlay: Overlay;

  /**
   * `bytes`: the maximum number of body bytes that one batch loads to send. `isAlone`: the batch has only one
   * command.
   */
  constructor(
    overlay: Overlay,
    { undo, bytes, isAlone }: { undo: UndoLog; bytes: number; isAlone: boolean },
  ) {
    this.#overlay = overlay;
    this.quotaCounts = new QuotaCounts(undo);
    this.bodiesToLoad = new BodiesToLoad(bytes);
    this.historyBytes = new HistoryBytes({ isAlone });
  }

  /** Returns a row that was read without its body. */
  getWithoutBody<T extends BodyTableName>(table: T, key: Key): WithoutBody<Rows[T]> | undefined {
    const rows: KeyMap<WithoutBody<Rows[T]> | undefined> = this.#rowsWithoutBody[table];
    return rows.get(key);
  }

  /** Returns the messages at the head of a waitlist that are still in it. */
  *waitlistHead(account: AccountId, waitlist: string): Generator<MessageState> {
    for (const id of this.waitlistHeads.listIds(account, waitlist)) {
      const state = this.#overlay.get("messages", [account, id]);
      if (state?.waitlist === waitlist) yield state;
    }
  }

  /** Loads what is not loaded yet. Returns false if everything was loaded. */
  async load(loader: Loader, needs: Needs, now: Millis): Promise<boolean> {
    // PostgreSQL locks rows in the order of these statements, so the order must be the same in every batch.
    const loads = [
      ...this.#loadByKey(loader, needs),
      ...this.#loadLists(loader, needs, now),
      ...this.#loadHistories(loader, needs),
      ...this.#loadWithoutBodies(loader, needs),
    ];
    // Bodies are loaded last, because the needed bodies are known only once all other rows are loaded.
    const bodies =
      loads.length === 0 ? this.bodiesToLoad.selectKeys(this.#listToSend(needs), this.#hasBody) : [];
    if (bodies.length > 0) loads.push(this.#loadRows(loader, "storedMessages", bodies));
    await Promise.all(loads);
    return loads.length > 0;
  }

  readonly #hasBody = (key: Key): boolean => this.#overlay.entry("storedMessages", key) !== undefined;

  *#listToSend({ toSend = [], toSendFromWaitlists = [] }: Needs): Generator<MessageState> {
    for (const { account, waitlist } of toSendFromWaitlists) yield* this.waitlistHead(account, waitlist);
    yield* toSend;
  }

  #loadByKey(loader: Loader, needs: Needs): Promise<void>[] {
    const loads: Promise<void>[] = [];
    for (const table of listTables(needs)) {
      const missing = this.#overlay.missing(table, needs[table] ?? none);
      if (missing.length > 0) loads.push(this.#loadRows(loader, table, missing));
    }
    return loads;
  }

  #loadLists(loader: Loader, needs: Needs, now: Millis): Promise<void>[] {
    const loads: Promise<void>[] = [];
    if (needs.due) loads.push(this.#loadDue(loader, now, needs.due));
    const headNeeds = this.waitlistHeads.pickUnknown(needs.waitlistHeads ?? none);
    if (headNeeds.length > 0) loads.push(this.#loadHeads(loader, headNeeds));
    if (needs.leasedByOthers) loads.push(this.#loadLeased(loader, needs.leasedByOthers));
    const countNeeds = this.quotaCounts.pickUnknown(needs.quotaCounts ?? none);
    if (countNeeds.length > 0)
      loads.push(loader.quotaCounts(countNeeds).then((found) => this.quotaCounts.record(countNeeds, found)));
    return loads;
  }

  #loadHistories(loader: Loader, needs: Needs): Promise<void>[] {
    const loads: Promise<void>[] = [];
    const runNeeds = this.#overlay.runIndex.pickUnaskedRows(needs.runRows);
    if (runNeeds.length > 0) loads.push(this.#loadRunRows(loader, runNeeds));
    const keptLogKeys = this.#overlay.keptEntries.pickUnasked(needs.keptLogMessages ?? none);
    if (keptLogKeys.length > 0)
      loads.push(loader.keptLog(keptLogKeys).then((rows) => this.#addAllLoaded("keptLog", rows)));
    const historyNeeds = this.#overlay.runIndex.pickUnaskedHistories(needs.runSteps);
    if (historyNeeds.length > 0) loads.push(this.#loadSteps(loader, historyNeeds));
    for (const need of this.expirations.pickUnasked(needs.expired ?? none))
      loads.push(this.#loadExpired(loader, need));
    return loads;
  }

  #loadWithoutBodies(loader: Loader, needs: Needs): Promise<void>[] {
    const loads: Promise<void>[] = [];
    for (const table of needs.withoutBodies ? withoutBodyTables : none) {
      const unknown = this.#overlay.missing(table, needs.withoutBodies?.[table] ?? none);
      const missing = unknown.filter((key) => !this.#rowsWithoutBody[table].has(key));
      if (missing.length > 0) loads.push(this.#loadRowsWithoutBody(loader, table, missing));
    }
    return loads;
  }

  async #loadRows<T extends TableName>(loader: Loader, table: T, keys: readonly Key[]): Promise<void> {
    for (const row of await loader.rows(table, keys)) this.#overlay.addLoaded(table, row);
    for (const key of keys) this.#overlay.addAbsent(table, key);
  }

  async #loadRowsWithoutBody<T extends (typeof withoutBodyTables)[number]>(
    loader: Loader,
    table: T,
    keys: readonly Key[],
  ): Promise<void> {
    const rows: KeyMap<WithoutBody<Rows[T]> | undefined> = this.#rowsWithoutBody[table];
    for (const key of keys) rows.set(key, undefined);
    for (const row of await loader.rows(table, keys, { bodies: false })) rows.set(toKey[table](row), row);
  }

  async #loadDue(loader: Loader, now: Millis, limits: DueNeed): Promise<void> {
    const due = await loader.due(now, limits);
    for (const table of dueTables) this.#addAllLoaded(table, due[table]);
    this.due = { at: now, ...due };
  }

  async #loadHeads(loader: Loader, heads: readonly WaitlistHead[]): Promise<void> {
    const found = await loader.waitlistHeads(heads);
    this.#addAllLoaded("messages", found);
    this.waitlistHeads.record(heads, found);
  }

  async #loadLeased(loader: Loader, need: NonNullable<Needs["leasedByOthers"]>): Promise<void> {
    this.leasedByOthers = await loader.leasedByOthers(need);
    this.#addAllLoaded("messages", this.leasedByOthers);
  }

  async #loadExpired(loader: Loader, need: ExpiredNeed): Promise<void> {
    const expired: ReturnType<Draft["expired"]> = await loader.expired(need);
    this.expirations.record(need.account, expired);
    for (const table of expiringTables) this.#addAllLoaded(table, expired[table]);
    for (const row of expired.deadLetters) this.#rowsWithoutBody.deadLetters.set([row.account, row.id], row);
  }

  async #loadRunRows(loader: Loader, needs: readonly RunRowsNeed[]): Promise<void> {
    const found = await loader.runRows(needs);
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

  async #loadSteps(loader: Loader, needs: readonly StepsNeed[]): Promise<void> {
    const fitting = this.historyBytes.pickFitting(needs, await loader.stepSizes(needs));
    this.#addAllLoaded("steps", await loader.steps(fitting));
  }

  #addAllLoaded<T extends TableName>(table: T, rows: readonly Rows[T][]): void {
    for (const row of rows) this.#overlay.addLoaded(table, row);
  }
}

const none: readonly never[] = [];
const withoutBodyTables = ["storedMessages", "deadLetters", "steps"] as const;
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
