import type {
  Draft,
  DueNeed,
  ExpiredNeed,
  Key,
  LineHead,
  Needs,
  OfRunNeed,
  OutlineName,
  Rows,
  RunNeed,
  StepsNeed,
  TableName,
} from "../../core/decision/command.ts";
import type { AccountId, MessageState, Millis, Outline } from "../../core/model/message.ts";
import { keyOf } from "../queries/keys.ts";
import { tablesOf } from "../store.ts";
import { ToSend } from "./bodiesToLoad.ts";
import { Expirations } from "./expirations.ts";
import { HistoryBytes } from "./historyBytes.ts";
import { KeyMap } from "./keyMap.ts";
import type { Due, Loader } from "./loader.ts";
import type { Overlay } from "./overlay.ts";
import { Places } from "./quotaCounts.ts";
import { Heads } from "./waitlistHeads.ts";

type Outlines = { [T in OutlineName]: KeyMap<Outline<Rows[T]> | undefined> };

/**
 * Loads what the decisions of a batch need, each thing once. Rows go to the overlay; lists, counts and rows without their
 * bodies stay here, as they were found.
 */
export class NeedsLoader {
  readonly heads = new Heads();
  readonly counts = new Places();
  readonly expired = new Expirations();
  readonly toSend: ToSend;
  readonly histories: HistoryBytes;
  due: Due & { at: Millis } = { at: 0, messages: [], lines: [], flows: [], schedules: [], waiters: [], turns: {} };
  leasedByOthers: readonly MessageState[] = [];
  /** Rows that were read without their bodies. They are never written. */
  readonly #outlines: Outlines = {
    envelopes: new KeyMap(),
    deadLetters: new KeyMap(),
    notifications: new KeyMap(),
    steps: new KeyMap(),
  };
  readonly #overlay: Overlay;

  /** `bytes`: the most bytes of bodies that one batch loads to send them. `isAlone`: the batch has only one command. */
  constructor(overlay: Overlay, { bytes, isAlone }: { bytes: number; isAlone: boolean }) {
    this.#overlay = overlay;
    this.toSend = new ToSend(bytes);
    this.histories = new HistoryBytes({ isAlone });
  }

  /** Returns a row that was read without its body. */
  outline<T extends OutlineName>(table: T, key: Key): Outline<Rows[T]> | undefined {
    const outlines: KeyMap<Outline<Rows[T]> | undefined> = this.#outlines[table];
    return outlines.get(key);
  }

  /** Returns the messages at the head of a waitlist that are still in it. */
  *head(account: AccountId, line: string): Generator<MessageState> {
    for (const id of this.heads.idsOf(account, line)) {
      const state = this.#overlay.get("messages", [account, id]);
      if (state?.line === line) yield state;
    }
  }

  /** Loads what is not here yet. Returns false if everything was here. */
  async load(loader: Loader, needs: Needs, now: Millis): Promise<boolean> {
    // PostgreSQL locks rows in the order of these questions; it must be the same in every batch.
    const loads = [
      ...this.#loadByKey(loader, needs),
      ...this.#loadLists(loader, needs, now),
      ...this.#loadHistories(loader, needs),
      ...this.#loadWithoutBodies(loader, needs),
    ];
    // Bodies come last: only when everything else is here is it known which of them are needed.
    const bodies = loads.length === 0 ? this.toSend.within(this.#allToSend(needs), this.#hasBody) : [];
    if (bodies.length > 0) loads.push(this.#loadRows(loader, "envelopes", bodies));
    await Promise.all(loads);
    return loads.length > 0;
  }

  readonly #hasBody = (key: Key): boolean => this.#overlay.entry("envelopes", key) !== undefined;

  *#allToSend({ toSend = [], toSendFrom = [] }: Needs): Generator<MessageState> {
    for (const { account, line } of toSendFrom) yield* this.head(account, line);
    yield* toSend;
  }

  #loadByKey(loader: Loader, needs: Needs): Promise<void>[] {
    const loads: Promise<void>[] = [];
    for (const table of tablesOf(needs)) {
      const missing = this.#overlay.missing(table, needs[table] ?? none);
      if (missing.length > 0) loads.push(this.#loadRows(loader, table, missing));
    }
    return loads;
  }

  #loadLists(loader: Loader, needs: Needs, now: Millis): Promise<void>[] {
    const loads: Promise<void>[] = [];
    if (needs.due) loads.push(this.#loadDue(loader, now, needs.due));
    const heads = this.heads.unknown(needs.heads ?? none);
    if (heads.length > 0) loads.push(this.#loadHeads(loader, heads));
    if (needs.leasedByOthers) loads.push(this.#loadLeased(loader, needs.leasedByOthers));
    const counts = this.counts.unknown(needs.counts ?? none);
    if (counts.length > 0) loads.push(loader.counts(counts).then((found) => this.counts.learn(counts, found)));
    return loads;
  }

  #loadHistories(loader: Loader, needs: Needs): Promise<void>[] {
    const loads: Promise<void>[] = [];
    const ofRuns = this.#overlay.runs.askRows(needs.ofRuns);
    if (ofRuns.length > 0) loads.push(this.#loadOfRuns(loader, ofRuns));
    const kept = this.#overlay.kept.unasked(needs.keptOf ?? none);
    if (kept.length > 0) loads.push(loader.kept(kept).then((rows) => this.#learnAll("keptLog", rows)));
    const histories = this.#overlay.runs.askHistories(needs.stepsOf);
    if (histories.length > 0) loads.push(this.#loadSteps(loader, histories));
    for (const need of this.expired.unasked(needs.expired ?? none)) loads.push(this.#loadExpired(loader, need));
    return loads;
  }

  #loadWithoutBodies(loader: Loader, needs: Needs): Promise<void>[] {
    const loads: Promise<void>[] = [];
    for (const table of needs.outlines ? outlineTables : none) {
      const unknown = this.#overlay.missing(table, needs.outlines?.[table] ?? none);
      const missing = unknown.filter((key) => !this.#outlines[table].has(key));
      if (missing.length > 0) loads.push(this.#loadOutlines(loader, table, missing));
    }
    return loads;
  }

  async #loadRows<T extends TableName>(loader: Loader, table: T, keys: readonly Key[]): Promise<void> {
    for (const row of await loader.rows(table, keys)) this.#overlay.learn(table, row);
    for (const key of keys) this.#overlay.learnAbsent(table, key);
  }

  async #loadOutlines<T extends (typeof outlineTables)[number]>(loader: Loader, table: T, keys: readonly Key[]): Promise<void> {
    const outlines: KeyMap<Outline<Rows[T]> | undefined> = this.#outlines[table];
    for (const key of keys) outlines.set(key, undefined);
    for (const row of await loader.rows(table, keys, { bodies: false })) outlines.set(keyOf[table](row), row);
  }

  async #loadDue(loader: Loader, now: Millis, most: DueNeed): Promise<void> {
    const due = await loader.due(now, most);
    for (const table of dueTables) this.#learnAll(table, due[table]);
    this.due = { at: now, ...due };
  }

  async #loadHeads(loader: Loader, heads: readonly LineHead[]): Promise<void> {
    const found = await loader.heads(heads);
    this.#learnAll("messages", found);
    this.heads.learn(heads, found);
  }

  async #loadLeased(loader: Loader, need: NonNullable<Needs["leasedByOthers"]>): Promise<void> {
    this.leasedByOthers = await loader.leasedByOthers(need);
    this.#learnAll("messages", this.leasedByOthers);
  }

  async #loadExpired(loader: Loader, need: ExpiredNeed): Promise<void> {
    const expired: ReturnType<Draft["expired"]> = await loader.expired(need);
    this.expired.learn(need.account, expired);
    for (const table of expiringTables) this.#learnAll(table, expired[table]);
    for (const row of expired.deadLetters) this.#outlines.deadLetters.set([row.account, row.id], row);
  }

  async #loadOfRuns(loader: Loader, needs: readonly OfRunNeed[]): Promise<void> {
    const found = await loader.ofRuns(needs);
    for (const table of ["messages", "waiters"] as const) this.#learnAll(table, found[table]);
    this.#learnOutlines("notifications", found.notifications);
    this.#learnOutlines("steps", found.steps);
  }

  #learnOutlines<T extends "notifications" | "steps">(table: T, rows: readonly (Outline<Rows[T]> & RunNeed & { id: string })[]): void {
    const outlines: KeyMap<Outline<Rows[T]> | undefined> = this.#outlines[table];
    for (const row of rows) {
      outlines.set([row.account, row.id], row);
      this.#overlay.runs.note(table, row);
    }
  }

  async #loadSteps(loader: Loader, needs: readonly StepsNeed[]): Promise<void> {
    const fitting = this.histories.within(needs, await loader.sizesOfSteps(needs));
    this.#learnAll("steps", await loader.steps(fitting));
  }

  #learnAll<T extends TableName>(table: T, rows: readonly Rows[T][]): void {
    for (const row of rows) this.#overlay.learn(table, row);
  }
}

const none: readonly never[] = [];
const outlineTables = ["envelopes", "deadLetters", "steps"] as const;
const dueTables = ["messages", "lines", "flows", "schedules", "waiters"] as const;
const expiringTables = ["log", "keptLog", "deduplications", "audit", "runs", "steps", "usage", "sightings"] as const;
