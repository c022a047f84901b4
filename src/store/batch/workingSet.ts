import type { Draft, DueNeed, ExpiredNeed, Key, LineHead, Needs, OfRunNeed, OutlineName } from "../../core/decision/command.ts";
import type { Rows, RunNeed, RunRows, RunTableName, StepsNeed, TableName } from "../../core/decision/command.ts";
import { Later } from "../../core/values/errors.ts";
import type { Hands } from "../../core/fairness/capacity.ts";
import { isBehind, laneOf } from "../../core/fairness/capacity.ts";
import { hostLine, isFlowLine } from "../../core/sending/admission.ts";
import { marksOfRow, remarked } from "../../core/search/tags.ts";
import { glanceOf, sightingsAt } from "../../core/search/timeIndex.ts";
import type { AccountId, Delivery, Flow, Held, Line, MessageState, Millis, Outline, RunKey, Schedule } from "../../core/model/message.ts";
import { noBytes } from "../../core/model/message.ts";
import type { Step, Waiter } from "../../core/model/run.ts";
import { stepKey } from "../../core/model/run.ts";
import type { Turns } from "../../core/fairness/turns.ts";
import { Expirations } from "./expirations.ts";
import { Heads } from "./waitlistHeads.ts";
import { HistoryBytes } from "./historyBytes.ts";
import { KeptEntries } from "./keptEntries.ts";
import { keyOf } from "../queries/keys.ts";
import { KeyMap } from "./keyMap.ts";
import type { Due, Loader } from "./loader.ts";
import type { RecentSightings, Sighted } from "./recentTimeIndex.ts";
import { Places } from "./quotaCounts.ts";
import { RunIndex } from "./runIndex.ts";
import { tablesOf } from "../store.ts";
import type { Change } from "./changes.ts";
import { Changes } from "./changes.ts";
import { Tally } from "./usage.ts";
import { TakenHands } from "./takenCapacity.ts";
import { ToSend } from "./bodiesToLoad.ts";

const none: readonly Key[] = [];

type Outlines = { [T in OutlineName]: KeyMap<Outline<Rows[T]> | undefined> };

/** The rows of one batch: what was loaded, and what its commands made of it so far. */
export class WorkingSet implements Draft {
  readonly deliveries: Delivery[] = [];
  readonly calledOff: Held[] = [];
  readonly #rows = new Changes();
  readonly tally = new Tally();
  readonly count: Draft["count"] = (account, counts) => this.tally.count(account, counts);
  readonly #runs = new RunIndex();
  readonly faults: string[] = [];
  readonly sighted: Sighted[] = [];
  readonly #recentSightings: RecentSightings;
  /** Rows that were read without their bodies. They are never written. */
  readonly #outlines: Outlines = { envelopes: new KeyMap(), deadLetters: new KeyMap(), notifications: new KeyMap(), steps: new KeyMap() };
  readonly #hands: Hands;
  readonly #taken: TakenHands;
  readonly #toSend: ToSend;
  readonly #histories: HistoryBytes;
  /** Undoes what the running command did, last first. */
  #undo: (() => void)[] = [];
  #due: Due & { at: Millis } = { at: 0, messages: [], lines: [], flows: [], schedules: [], waiters: [], turns: {} };
  readonly #heads = new Heads();
  readonly #places = new Places();
  /** Whom the running command has taken out of a line. */
  #left: MessageState[] = [];
  #leasedByOthers: readonly MessageState[] = [];
  readonly #expired = new Expirations();
  readonly #kept = new KeptEntries();
  readonly #isAlone: boolean;

  constructor(hands: Hands, of: { isAlone: boolean; recentSightings: RecentSightings }) {
    this.#recentSightings = of.recentSightings;
    this.#hands = hands;
    this.#isAlone = of.isAlone;
    this.#taken = new TakenHands(hands);
    this.#toSend = new ToSend(hands.bytes.perBatch);
    this.#histories = new HistoryBytes(of);
  }

  /** Loads what is not here yet. True when there was anything to load. */
  async load(loader: Loader, needs: Needs, now: Millis): Promise<boolean> {
    const loads: Promise<void>[] = [];
    for (const table of tablesOf(needs)) {
      const missing = this.#rows.missing(table, needs[table] ?? none);
      if (missing.length > 0) loads.push(this.#loadRows(loader, table, missing));
    }
    if (needs.due) loads.push(this.#loadDue(loader, now, needs.due));
    const heads = this.#heads.unknown(needs.heads ?? []);
    if (heads.length > 0) loads.push(this.#loadHeads(loader, heads));
    if (needs.leasedByOthers) loads.push(this.#loadLeased(loader, needs.leasedByOthers));
    const counts = this.#places.unknown(needs.counts ?? []);
    if (counts.length > 0) loads.push(loader.counts(counts).then((found) => this.#places.learn(counts, found)));
    const ofRuns = this.#runs.askRows(needs.ofRuns);
    if (ofRuns.length > 0) loads.push(this.#loadOfRuns(loader, ofRuns));
    const kept = this.#kept.unasked(needs.keptOf ?? none);
    if (kept.length > 0) loads.push(loader.kept(kept).then((rows) => this.#learnAll("keptLog", rows)));
    const histories = this.#runs.askHistories(needs.stepsOf);
    if (histories.length > 0) loads.push(this.#loadSteps(loader, histories));
    for (const need of this.#expired.unasked(needs.expired ?? [])) loads.push(this.#loadExpired(loader, need));
    for (const table of needs.outlines ? (["envelopes", "deadLetters", "steps"] as const) : []) {
      const missing = this.#rows.missing(table, needs.outlines?.[table] ?? []).filter((key) => !this.#outlines[table].has(key));
      if (missing.length > 0) loads.push(this.#loadOutlines(loader, table, missing));
    }
    const toSend =
      loads.length === 0 ? this.#toSend.within(this.#allToSend(needs), (key) => this.#rows.get("envelopes", key) !== undefined) : [];
    if (toSend.length > 0) loads.push(this.#loadRows(loader, "envelopes", toSend));
    await Promise.all(loads);
    return loads.length > 0;
  }

  get<T extends TableName>(table: T, ...key: Key): Rows[T] | undefined {
    return this.#rows.get(table, key)?.now;
  }

  outline<T extends OutlineName>(table: T, ...key: Key): Outline<Rows[T]> | undefined {
    const entry = this.#rows.get(table, key);
    const outlines: KeyMap<Outline<Rows[T]> | undefined> = this.#outlines[table];
    return entry ? entry.now : outlines.get(key);
  }

  put<T extends TableName>(table: T, row: Rows[T]): void {
    const key = keyOf[table](row);
    const before = this.#set(table, key, row);
    if (before === undefined) this.#places.change(table, key, 1, this.#undo);
    const marks = marksOfRow[table];
    if (marks && (before === undefined || remarked.has(table))) this.#remark(key[0], before ? marks(before) : [], marks(row));
    if (table === "messages" && "state" in row && row.state === "held") this.#noteHeld(row);
  }

  #remark(account: AccountId, before: readonly string[], now: readonly string[]): void {
    for (const id of before) if (!now.includes(id)) this.#set("marks", [account, id], undefined);
    for (const id of now) if (!before.includes(id)) this.#set("marks", [account, id], { account, id });
  }

  drop(table: TableName, ...key: Key): void {
    for (const id of this.#marks(table, key)) this.#set("marks", [key[0], id], undefined);
    if (this.#set(table, key, undefined) !== undefined) this.#places.change(table, key, -1, this.#undo);
  }

  keep: Draft["keep"] = (row) => {
    this.#set("log", [row.account, row.id], undefined);
    this.#set("keptLog", [row.account, row.id], row);
  };

  keptOf: Draft["keptOf"] = (account, messageId) =>
    this.#kept.of(account, messageId).flatMap((id) => this.get("keptLog", account, id) ?? []);

  countOf: Draft["countOf"] = (account, name) => this.#places.of(account, name);

  sight: Draft["sight"] = (account, id, sights) => {
    const seen: Sighted = { account, at: glanceOf(id), sights };
    if (this.#recentSightings.has(seen)) return;
    if (this.#recentSightings.isFull(seen, this.sighted.length)) seen.sights = undefined;
    if (this.#recentSightings.has(seen)) return;
    const ids = sightingsAt(seen.sights, seen.at).filter((name) => !this.get("sightings", account, name));
    for (const name of ids) this.#set("sightings", [account, name], { account, id: name });
    if (ids.length === 0) return;
    this.sighted.push(seen);
    this.#undo.push(() => this.sighted.pop());
  };

  *#allToSend({ toSend = [], toSendFrom = [] }: Needs): Generator<MessageState> {
    for (const { account, line } of toSendFrom) yield* this.head(account, line);
    yield* toSend;
  }

  /** The marks that go with a row. */
  #marks<T extends TableName>(table: T, key: Key): readonly string[] {
    const row = this.get(table, ...key);
    const letter = table === "deadLetters" && !row ? this.outline("deadLetters", ...key) : undefined;
    return (row ? marksOfRow[table]?.(row) : letter && marksOfRow.deadLetters?.({ ...letter, body: noBytes })) ?? [];
  }

  due(): readonly MessageState[] {
    return this.#current(this.#due.messages).filter(({ dueAt }) => dueAt !== null && dueAt <= this.#due.at);
  }

  dueLines(): readonly Line[] {
    const lines = this.#due.lines.flatMap((line) => this.get("lines", line.account, line.host) ?? []);
    return lines.filter(({ dueAt }) => dueAt <= this.#due.at);
  }

  dueFlows = (): readonly Flow[] => this.#stillDue("flows", this.#due.flows);
  dueSchedules = (): readonly Schedule[] => this.#stillDue("schedules", this.#due.schedules);
  dueWaiters = (): readonly Waiter[] => this.#stillDue("waiters", this.#due.waiters);
  turns = (): Turns => this.#due.turns;

  #stillDue<T extends "flows" | "schedules" | "waiters">(table: T, due: readonly Rows[T][]): Rows[T][] {
    const rows = due.flatMap(({ account, id }) => this.get(table, account, id) ?? []);
    return rows.filter(({ dueAt }) => dueAt !== null && dueAt <= this.#due.at);
  }

  ofRun<T extends RunTableName>(table: T, account: AccountId, run: RunKey): readonly RunRows[T][] {
    const find = (table === "notifications" || table === "steps" ? this.outline : this.get) as (
      ...key: unknown[]
    ) => RunRows[T] | undefined;
    const rows = this.#runs.idsIn(table, { account, run }).flatMap((id) => find.call(this, table, account, id) ?? []);
    return rows.filter((row) => row.run === run);
  }

  mayEnd = (account: AccountId, run: RunKey): boolean => this.#runs.wereRowsAsked({ account, run, table: "messages" });

  stepsOf(account: AccountId, run: RunKey, slot?: string): readonly Step[] {
    const need = { account, run, ...(slot === undefined ? {} : { slot }) };
    if (this.#histories.isLeft(need)) throw new Later();
    if (slot !== undefined) return [this.get("steps", account, stepKey(run, slot)) ?? []].flat();
    if (!this.#runs.wasHistoryAsked(need)) return [];
    return this.#runs.idsIn("steps", need).flatMap((id) => this.get("steps", account, id) ?? []);
  }

  *head(account: AccountId, line: string): Generator<MessageState> {
    for (const id of this.#heads.idsOf(account, line)) {
      const state = this.get("messages", account, id);
      if (state?.line === line) yield state;
    }
  }

  isWholeLine(account: AccountId, line: string): boolean {
    const isKnownWhole = this.#heads.isWhole(account, line);
    if (isKnownWhole !== undefined) return isKnownWhole;
    // Nobody stands where there was no line.
    if (isFlowLine(line)) {
      const flow = this.#rows.get("flows", [account, line]);
      return flow !== undefined && flow.loaded && (flow.before === undefined || flow.before.waiting === 0);
    }
    const hosts = this.#rows.get("lines", [account, line.slice(hostLine("").length)]);
    return hosts !== undefined && hosts.loaded && hosts.before === undefined;
  }

  leasedByOthers = (): readonly MessageState[] => this.#current(this.#leasedByOthers);

  expired: Draft["expired"] = (account) => this.#expired.of(account, this, (table, row) => this.#isUntouched(table, row));

  hasHand(account: AccountId, host: string): boolean {
    return this.#taken.isOneFree(laneOf(account, host));
  }

  isDenied = (account: AccountId, host: string): boolean => this.#taken.isDenied(laneOf(account, host));

  takeHand(account: AccountId, host: string, size: number): boolean {
    if (!this.hasHand(account, host)) return false;
    this.#undo.push(this.#taken.take(laneOf(account, host), size));
    return true;
  }

  isAtHand({ account, id }: Pick<MessageState, "account" | "id">): boolean {
    return this.#rows.get("envelopes", [account, id]) !== undefined;
  }

  isNewcomer(account: AccountId, host: string): boolean {
    return this.#taken.isNewcomer(laneOf(account, host));
  }

  fault(what: string): void {
    this.faults.push(what);
    this.#undo.push(() => this.faults.pop());
  }

  isAlone(): boolean {
    return this.#isAlone;
  }

  isBehind = (account: AccountId): boolean => isBehind(this.#hands, account);
  hasChanged = (): boolean => this.#undo.length > 0;

  isCrowded = (of: Pick<MessageState, "account" | "host">): boolean => this.#toSend.isCrowded(of);

  deliver(delivery: Delivery): void {
    this.deliveries.push(delivery);
    this.#undo.push(() => this.deliveries.pop());
  }

  callOff(held: Held): void {
    this.calledOff.push(held);
    this.#undo.push(() => this.calledOff.pop());
  }

  /** Runs one command's changes: all of them, or none when it throws. */
  attempt<Answer>(run: () => Answer): Answer {
    this.#undo = [];
    this.#left = [];
    try {
      const answer = this.tally.during(run);
      // A hundred outcomes of one host would else pass over each other's messages again and again.
      for (const left of this.#left) if (this.get("messages", left.account, left.id)?.line !== left.line) this.#heads.leave(left);
      return answer;
    } catch (error) {
      for (const undo of this.#undo.reverse()) undo();
      throw error;
    }
  }

  /** The tables of which rows were loaded or made. */
  touched(): readonly TableName[] {
    return this.#rows.touched();
  }

  /** The net changes of a table: what was loaded or made, and is not what the storage holds. */
  changes<T extends TableName>(table: T): readonly Change<Rows[T]>[] {
    return this.#rows.of(table);
  }

  #note(table: TableName, row: Rows[TableName]): void {
    if ("run" in row) this.#runs.note(table, row);
    if (table === "keptLog") this.#kept.note(row as Rows["keptLog"]);
  }

  /** Answers what was there. */
  #set<T extends TableName>(table: T, key: Key, row: Rows[T] | undefined): Rows[T] | undefined {
    const entry = this.#rows.get(table, key);
    if (row !== undefined) this.#note(table, row);
    if (!entry) {
      this.#rows.set(table, { key, loaded: false, before: undefined, now: row });
      this.#undo.push(() => this.#rows.delete(table, key));
      return undefined;
    }
    const { now } = entry;
    entry.now = row;
    if (now && "state" in now && now.state === "held") this.#left.push(now);
    this.#undo.push(() => (entry.now = now));
    return now;
  }

  #isUntouched<T extends TableName>(table: T, row: Rows[T]): boolean {
    const entry = this.#rows.get(table, keyOf[table](row));
    return entry?.now !== undefined && entry.now === entry.before;
  }

  #learn<T extends TableName>(table: T, row: Rows[T]): void {
    const key = keyOf[table](row);
    this.#note(table, row);
    if (!this.#rows.get(table, key)) this.#rows.set(table, { key, loaded: true, before: row, now: row });
  }

  async #loadRows<T extends TableName>(loader: Loader, table: T, keys: readonly Key[]): Promise<void> {
    for (const row of await loader.rows(table, keys)) this.#learn(table, row);
    for (const key of keys)
      if (!this.#rows.get(table, key)) this.#rows.set(table, { key, loaded: true, before: undefined, now: undefined });
  }

  async #loadOutlines<T extends "envelopes" | "deadLetters" | "steps">(loader: Loader, table: T, keys: readonly Key[]): Promise<void> {
    const outlines: KeyMap<Outline<Rows[T]> | undefined> = this.#outlines[table];
    for (const key of keys) outlines.set(key, undefined);
    for (const row of await loader.rows(table, keys, { bodies: false })) outlines.set(keyOf[table](row), row);
  }

  async #loadDue(loader: Loader, now: Millis, most: DueNeed): Promise<void> {
    const due = await loader.due(now, most);
    for (const table of ["messages", "lines", "flows", "schedules", "waiters"] as const) this.#learnAll(table, due[table]);
    this.#due = { at: now, ...due };
  }

  async #loadHeads(loader: Loader, heads: readonly LineHead[]): Promise<void> {
    const found = await loader.heads(heads);
    this.#learnAll("messages", found);
    this.#heads.learn(heads, found);
  }

  /** Who comes to stand in line is seen by those that serve it later in the batch, unless others stand before him who are not in sight. */
  #noteHeld(state: MessageState): void {
    if (state.line !== null && this.isWholeLine(state.account, state.line)) this.#heads.join(state);
  }

  async #loadLeased(loader: Loader, need: NonNullable<Needs["leasedByOthers"]>): Promise<void> {
    this.#leasedByOthers = await loader.leasedByOthers(need);
    for (const state of this.#leasedByOthers) this.#learn("messages", state);
  }

  async #loadExpired(loader: Loader, need: ExpiredNeed): Promise<void> {
    const expired = await loader.expired(need);
    this.#expired.learn(need.account, expired);
    for (const table of ["log", "keptLog", "deduplications", "audit", "runs", "steps", "usage", "sightings"] as const)
      this.#learnAll(table, expired[table]);
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
      this.#runs.note(table, row);
    }
  }

  async #loadSteps(loader: Loader, of: readonly StepsNeed[]): Promise<void> {
    const some = this.#histories.within(of, await loader.sizesOfSteps(of));
    this.#learnAll("steps", await loader.steps(some));
  }

  readonly #learnAll = <T extends TableName>(table: T, rows: readonly Rows[T][]): void => rows.forEach((row) => this.#learn(table, row));

  /** Loaded states as they are now; those that are gone are left out. */
  #current(states: readonly MessageState[]): MessageState[] {
    return states.flatMap((state) => this.get("messages", state.account, state.id) ?? []);
  }
}
