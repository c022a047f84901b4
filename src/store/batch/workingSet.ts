import type { Draft, Key, Needs, OutlineName, Rows, RunRows, RunTableName, TableName } from "../../core/decision/command.ts";
import { Later } from "../../core/values/errors.ts";
import type { Hands } from "../../core/admission/capacity.ts";
import { isBehind, laneOf } from "../../core/admission/capacity.ts";
import { hasLimiter, parseGate } from "../../core/admission/gate.ts";
import { marksOfRow, remarked } from "../../core/search/tags.ts";
import { glanceOf, sightingsAt } from "../../core/search/timeIndex.ts";
import type { AccountId, Delivery, Flow, Held, Line, MessageState, Millis } from "../../core/model/message.ts";
import type { Outline, RunKey, Schedule } from "../../core/model/message.ts";
import { noBytes } from "../../core/model/message.ts";
import type { Step, Waiter } from "../../core/model/run.ts";
import { toStepId } from "../../core/model/stepId.ts";
import type { Turns } from "../../core/fairness/turns.ts";
import { keyOf } from "../queries/keys.ts";
import { Effects } from "./effects.ts";
import type { Loader } from "./loader.ts";
import { NeedsLoader } from "./needsLoader.ts";
import type { Change } from "./overlay.ts";
import { Overlay } from "./overlay.ts";
import type { RecentSightings, Sighted } from "./recentTimeIndex.ts";
import { TakenHands } from "./takenCapacity.ts";
import { UndoLog } from "./undoLog.ts";

/**
 * What the decisions of one batch see and change. The loader brings rows into the overlay; the overlay has them as the
 * commands left them; the undo log takes back what a command did that throws.
 */
export class WorkingSet implements Draft {
  readonly #undo = new UndoLog();
  readonly #overlay = new Overlay(this.#undo);
  readonly effects = new Effects(this.#undo);
  readonly #loaded: NeedsLoader;
  readonly #hands: Hands;
  readonly #taken: TakenHands;
  readonly #isAlone: boolean;
  readonly #recentSightings: RecentSightings;
  /** Messages that the running command has taken out of a waitlist. */
  #left: MessageState[] = [];

  constructor(hands: Hands, { isAlone, recentSightings }: { isAlone: boolean; recentSightings: RecentSightings }) {
    this.#loaded = new NeedsLoader(this.#overlay, { bytes: hands.bytes.perBatch, isAlone });
    this.#hands = hands;
    this.#taken = new TakenHands(hands);
    this.#isAlone = isAlone;
    this.#recentSightings = recentSightings;
  }

  /** Loads what is not here yet. Returns false if everything was here. */
  load(loader: Loader, needs: Needs, now: Millis): Promise<boolean> {
    return this.#loaded.load(loader, needs, now);
  }

  /** Runs one command: all of its changes are made, or none if it throws. */
  attempt<Answer>(run: () => Answer): Answer {
    this.#undo.begin();
    this.#left = [];
    try {
      const answer = this.effects.tally.during(run);
      // A hundred outcomes of one host would else pass over each other's messages again and again.
      for (const left of this.#left) if (this.#lineOf(left) !== left.line) this.#loaded.heads.leave(left);
      return answer;
    } catch (error) {
      this.#undo.rollBack();
      throw error;
    }
  }

  /** Returns the tables of which rows were loaded or written. */
  touched(): readonly TableName[] {
    return this.#overlay.touched();
  }

  /** Returns the net changes of a table: the rows that differ from what the storage holds. */
  changes<T extends TableName>(table: T): readonly Change<Rows[T]>[] {
    return this.#overlay.changes(table);
  }

  get<T extends TableName>(table: T, ...key: Key): Rows[T] | undefined {
    return this.#overlay.get(table, key);
  }

  outline<T extends OutlineName>(table: T, ...key: Key): Outline<Rows[T]> | undefined {
    const entry = this.#overlay.entry(table, key);
    return entry ? entry.now : this.#loaded.outline(table, key);
  }

  put<T extends TableName>(table: T, row: Rows[T]): void {
    const key = keyOf[table](row);
    const before = this.#set(table, key, row);
    if (before === undefined) this.#loaded.counts.change(table, key, 1, this.#undo);
    const marks = marksOfRow[table];
    if (marks && (before === undefined || remarked.has(table))) this.#remark(key[0], before ? marks(before) : [], marks(row));
    if (table === "messages" && "state" in row && row.state === "held") this.#noteHeld(row);
  }

  drop(table: TableName, ...key: Key): void {
    for (const id of this.#marks(table, key)) this.#set("marks", [key[0], id], undefined);
    if (this.#set(table, key, undefined) !== undefined) this.#loaded.counts.change(table, key, -1, this.#undo);
  }

  keep: Draft["keep"] = (row) => {
    this.#set("log", [row.account, row.id], undefined);
    this.#set("keptLog", [row.account, row.id], row);
  };

  keptOf: Draft["keptOf"] = (account, messageId) =>
    this.#overlay.kept.of(account, messageId).flatMap((id) => this.get("keptLog", account, id) ?? []);

  countOf: Draft["countOf"] = (account, name) => this.#loaded.counts.of(account, name);

  sight: Draft["sight"] = (account, id, sights) => {
    const seen: Sighted = { account, at: glanceOf(id), sights };
    if (this.#recentSightings.has(seen)) return;
    if (this.#recentSightings.isFull(seen, this.effects.sighted.length)) seen.sights = undefined;
    if (this.#recentSightings.has(seen)) return;
    const ids = sightingsAt(seen.sights, seen.at).filter((name) => !this.get("sightings", account, name));
    for (const name of ids) this.#set("sightings", [account, name], { account, id: name });
    if (ids.length > 0) this.effects.add(this.effects.sighted, seen);
  };

  count: Draft["count"] = (account, counts) => this.effects.tally.count(account, counts);

  due(): readonly MessageState[] {
    const { messages, at } = this.#loaded.due;
    return this.#current(messages).filter(({ dueAt }) => dueAt !== null && dueAt <= at);
  }

  dueLines(): readonly Line[] {
    const { lines, at } = this.#loaded.due;
    return lines.flatMap((line) => this.get("lines", line.account, line.host) ?? []).filter(({ dueAt }) => dueAt <= at);
  }

  dueFlows = (): readonly Flow[] => this.#stillDue("flows", this.#loaded.due.flows);
  dueSchedules = (): readonly Schedule[] => this.#stillDue("schedules", this.#loaded.due.schedules);
  dueWaiters = (): readonly Waiter[] => this.#stillDue("waiters", this.#loaded.due.waiters);
  turns = (): Turns => this.#loaded.due.turns;

  ofRun<T extends RunTableName>(table: T, account: AccountId, run: RunKey): readonly RunRows[T][] {
    const find = (table === "notifications" || table === "steps" ? this.outline : this.get) as (
      ...key: unknown[]
    ) => RunRows[T] | undefined;
    const ids = this.#overlay.runs.idsIn(table, { account, run });
    return ids.flatMap((id) => find.call(this, table, account, id) ?? []).filter((row) => row.run === run);
  }

  mayEnd = (account: AccountId, run: RunKey): boolean => this.#overlay.runs.wereRowsAsked({ account, run, table: "messages" });

  stepsOf(account: AccountId, run: RunKey, slot?: string): readonly Step[] {
    const need = { account, run, ...(slot === undefined ? {} : { slot }) };
    if (this.#loaded.histories.isLeft(need)) throw new Later();
    if (slot !== undefined) return [this.get("steps", account, toStepId(run, slot)) ?? []].flat();
    if (!this.#overlay.runs.wasHistoryAsked(need)) return [];
    return this.#overlay.runs.idsIn("steps", need).flatMap((id) => this.get("steps", account, id) ?? []);
  }

  head(account: AccountId, line: string): Iterable<MessageState> {
    return this.#loaded.head(account, line);
  }

  isWholeLine(account: AccountId, line: string): boolean {
    const isKnownWhole = this.#loaded.heads.isWhole(account, line);
    if (isKnownWhole !== undefined) return isKnownWhole;
    // A waitlist that the storage does not have is empty.
    const gate = parseGate(line);
    if (hasLimiter(gate)) {
      const flow = this.#overlay.entry("flows", [account, line]);
      return flow !== undefined && flow.loaded && (flow.before === undefined || flow.before.waiting === 0);
    }
    const hosts = this.#overlay.entry("lines", [account, gate.name]);
    return hosts !== undefined && hosts.loaded && hosts.before === undefined;
  }

  leasedByOthers = (): readonly MessageState[] => this.#current(this.#loaded.leasedByOthers);

  expired: Draft["expired"] = (account) => this.#loaded.expired.of(account, this, (table, row) => this.#overlay.isUntouched(table, row));

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
    return this.#overlay.entry("envelopes", [account, id]) !== undefined;
  }

  isNewcomer = (account: AccountId, host: string): boolean => this.#taken.isNewcomer(laneOf(account, host));
  isAlone = (): boolean => this.#isAlone;
  isBehind = (account: AccountId): boolean => isBehind(this.#hands, account);
  hasChanged = (): boolean => !this.#undo.isEmpty();
  isCrowded = (message: Pick<MessageState, "account" | "host">): boolean => this.#loaded.toSend.isCrowded(message);
  fault = (what: string): void => this.effects.add(this.effects.faults, what);
  deliver = (delivery: Delivery): void => this.effects.add(this.effects.deliveries, delivery);
  callOff = (held: Held): void => this.effects.add(this.effects.calledOff, held);

  /** Like `Overlay.set`; also notes the messages that were held, which may have left their waitlist. */
  #set<T extends TableName>(table: T, key: Key, row: Rows[T] | undefined): Rows[T] | undefined {
    const before = this.#overlay.set(table, key, row);
    if (before && "state" in before && before.state === "held") this.#left.push(before);
    return before;
  }

  #remark(account: AccountId, before: readonly string[], now: readonly string[]): void {
    for (const id of before) if (!now.includes(id)) this.#set("marks", [account, id], undefined);
    for (const id of now) if (!before.includes(id)) this.#set("marks", [account, id], { account, id });
  }

  /** Returns the tags that go with a row. */
  #marks<T extends TableName>(table: T, key: Key): readonly string[] {
    const row = this.#overlay.get(table, key);
    if (row) return marksOfRow[table]?.(row) ?? [];
    const letter = table === "deadLetters" ? this.outline("deadLetters", ...key) : undefined;
    return (letter && marksOfRow.deadLetters?.({ ...letter, body: noBytes })) ?? [];
  }

  /**
   * A message that is held now is seen by those that serve its waitlist later in the batch, unless messages before it
   * have not been loaded.
   */
  #noteHeld(state: MessageState): void {
    if (state.line !== null && this.isWholeLine(state.account, state.line)) this.#loaded.heads.join(state);
  }

  #lineOf = ({ account, id }: MessageState): string | null | undefined => this.get("messages", account, id)?.line;

  #stillDue<T extends "flows" | "schedules" | "waiters">(table: T, due: readonly Rows[T][]): Rows[T][] {
    const rows = due.flatMap(({ account, id }) => this.get(table, account, id) ?? []);
    return rows.filter(({ dueAt }) => dueAt !== null && dueAt <= this.#loaded.due.at);
  }

  /** Returns loaded states as they are now, without those that are gone. */
  #current(states: readonly MessageState[]): MessageState[] {
    return states.flatMap((state) => this.get("messages", state.account, state.id) ?? []);
  }
}
