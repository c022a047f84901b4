import type { Clock } from "../../engine/clock/clock.ts";
import { alarm } from "../../engine/clock/clock.ts";
import type { MessageInput } from "../../engine/core/model/message.ts";
import type { Millis } from "../../engine/core/values/basics.ts";
import { Refusal, isUnavailable } from "../../engine/core/values/errors.ts";
import { limits } from "../../engine/core/values/limits.ts";
import type { Store } from "../../engine/store/store.ts";
import { isUrl } from "../../api/http/target.ts";
import type { GroupTarget } from "../../api/publishing/read.ts";
import { assertFanOut, findGroup } from "../../api/publishing/read.ts";
import type { ServerParts } from "../operation.ts";
import { checkCounts, checkKey, checkRows } from "./answers.ts";
import type { RowResult } from "./commands.ts";
import { toRowResult } from "./commands.ts";
import type { OutboxDatabase } from "./database.ts";
import { changeOwner, foreignOwner, openDatabase } from "./database.ts";
import { OutboxFailure } from "./failure.ts";
import type { Mark, OutboxSetting, OutboxStatus } from "./outbox.ts";
import { leaseTime } from "./outbox.ts";
import type { AccountOutbox } from "./outbox.ts";
import type { ReadRow } from "./round.ts";
import { emptyRound, ScanRange, splitByWeight, toMark } from "./round.ts";
import type { Round } from "./round.ts";
import type { OutboxRow } from "./rows.ts";
import { readRow } from "./rows.ts";
import {
  deleteRows,
  findRows,
  hasRows,
  maxRoundAnswer,
  readCounts,
  rejectRows,
  roundRows,
  setAsleep,
  takeRows,
} from "./statements.ts";

/** The pause after a round, which doubles while there are no rows. */
const shortestPause: Millis = 50;
const longestPause: Millis = 1_000;
/** The longest pause while the database does not work. */
const longestWait: Millis = 30_000;
/** The pause while all deliveries are on hold. */
const holdPause: Millis = 1_000;
/** The time between two notes about the state of an outbox, which also keep its lease. */
const noteInterval: Millis = leaseTime / 3;
/** How long a relay that stops may use the database of the user to finish its round. */
const stopGrace: Millis = 1_000;
/** The maximum number of marks. A database that deletes rows as it should has at most those of one round. */
const maxMarks = 2 * roundRows;
/** The services of the server that a relay uses. */
export type RelayParts = Pick<
  ServerParts,
  "store" | "clock" | "isOnHold" | "isShared" | "connect" | "authorities" | "publishing" | "logFailure"
>;

type GroupCache = Map<string, Promise<GroupTarget>>;

/** Another node has the outbox now. */
class LeaseLost extends Error {}

/**
 * Takes the rows of one outbox, while this node has its lease. Rows are locked in the database of the user,
 * published, deleted there, and only then is the transaction committed. A crash in between repeats rows, and
 * the marks drop them.
 */
export class Relay {
  readonly #parts: RelayParts;
  readonly #outbox: AccountOutbox;
  readonly #setting: OutboxSetting;
  readonly #end = new AbortController();
  #wake = new AbortController();
  /** Closes the connection to the database. */
  #cut = new AbortController();
  #loop: Promise<void> = Promise.resolve();
  /** The number of the lease, or null. */
  #number: number | null = null;
  /** The marks that are stored, and those of them whose rows are gone. */
  #marks: readonly Mark[] = [];
  #done: readonly Mark[] = [];
  #error: Pick<OutboxStatus, "error" | "errorAt"> = { error: null, errorAt: null };
  /** Whether the database has reported a row since the last look. */
  #isNoticed = false;

  constructor(parts: RelayParts, outbox: AccountOutbox) {
    this.#parts = parts;
    this.#outbox = outbox;
    this.#setting = outbox.setting;
  }

  start(): void {
    this.#loop = this.#run();
  }

  /** Stops after the round that is being done, and gives the lease back. A slow database is not awaited. */
  async stop(): Promise<void> {
    this.#end.abort();
    this.#wake.abort();
    const stopAlarm = alarm(stopGrace, () => this.#cut.abort());
    await this.#loop;
    stopAlarm();
  }

  async #run(): Promise<void> {
    let wait = longestPause;
    while (!this.#end.signal.aborted) {
      const { clock, isOnHold } = this.#parts;
      const startedAt = clock.now();
      let hasFailed = false;
      try {
        if (!isOnHold()) await this.#takeAndServe();
      } catch (error) {
        hasFailed = true;
        await this.#noteFailure(error);
      }
      await this.#giveBack();
      wait =
        hasFailed && clock.now() - startedAt < longestWait ? Math.min(2 * wait, longestWait) : longestPause;
      await this.#sleep(isOnHold() ? holdPause : hasFailed ? wait : noteInterval);
    }
  }

  async #sleep(time: Millis): Promise<void> {
    const { clock }: { clock: Clock } = this.#parts;
    if (this.#end.signal.aborted || this.#isNoticed) return;
    this.#wake = new AbortController();
    await clock.sleep(clock.now() + time, this.#wake.signal);
  }

  async #takeAndServe(): Promise<void> {
    const { store, isShared } = this.#parts;
    const state = await store.execute("takeOutbox", { ...this.#named(), isAlone: !isShared });
    if (!state?.lease) return;
    this.#number = state.lease.number;
    this.#marks = state.marks;
    this.#done = [];
    const { error, errorAt } = state;
    this.#error = { error, errorAt };
    if (this.#end.signal.aborted) return;
    this.#cut = new AbortController();
    const database = await openDatabase(this.#outbox, this.#parts, this.#cut.signal);
    try {
      await changeOwner(database, this.#setting, "claim");
      await this.#serve(database);
    } finally {
      database.close();
      // A report of this connection must not shorten the wait for the next one, which looks for all rows.
      this.#isNoticed = false;
    }
  }

  readonly #named = () => ({ account: this.#outbox.account, name: this.#setting.name });

  async #serve(database: OutboxDatabase): Promise<void> {
    const { clock, isOnHold } = this.#parts;
    const { schema } = this.#setting;
    const scan = new ScanRange(clock);
    const canSleep = !database.isPooled;
    let [pause, notedAt, isAsleep] = [shortestPause, -Infinity, canSleep];
    if (canSleep) await database.run(`listen ${schema}_outbox`);
    database.onNotice = () => {
      this.#isNoticed = true;
      this.#wake.abort();
    };
    while (!this.#end.signal.aborted && !isOnHold()) {
      if (clock.now() - notedAt >= noteInterval) {
        await this.#note(database);
        notedAt = clock.now();
      }
      this.#isNoticed = false;
      const after = scan.begin();
      const isEmpty = pause >= longestPause && (await database.run(hasRows(schema, after))).length === 0;
      if (!isEmpty && isAsleep) await database.run(setAsleep(schema, (isAsleep = false)));
      const round = isEmpty ? emptyRound : await this.#round(database, after, scan);
      scan.end();
      await this.#setError(round.waits);
      if (round.moved === 0 && this.#done.length > 0) await this.#forgetDone();
      if (round.isFull) continue;
      const longest = round.waits === null ? longestPause : noteInterval;
      pause = round.moved > 0 ? shortestPause : Math.min(2 * pause, longest);
      // One more look follows soon: a row may have come before the database knew that the relay sleeps.
      const fallsAsleep = canSleep && pause >= longestPause && !isAsleep;
      if (fallsAsleep) await database.run(setAsleep(schema, (isAsleep = true)));
      await this.#sleep(fallsAsleep ? shortestPause : pause);
    }
    if (isAsleep) await database.run(setAsleep(schema, false));
  }

  /** Takes rows once. */
  async #round(database: OutboxDatabase, after: string, scan: ScanRange): Promise<Round> {
    const { schema } = this.#setting;
    const maxBody = this.#parts.publishing.maxBody ?? limits.messageBytes;
    const statement = takeRows(this.#setting, after, maxBody);
    const rows = checkRows(await database.run<OutboxRow>(statement, maxRoundAnswer(maxBody)), maxBody);
    if (rows.length === 0) {
      await database.run("commit");
      return emptyRound;
    }
    const results = await this.#publish(rows);
    const taken = rows.filter((_, at) => results[at] === "taken");
    const rejected = rows.flatMap(({ id }, at) => {
      const result = results[at];
      return typeof result === "object" && !result.isPassing ? [{ id, reason: result.reason }] : [];
    });
    if (rejected.length > 0)
      await database.query(rejectRows(schema), [
        rejected.map(({ id }) => id),
        rejected.map(({ reason }) => reason),
      ]);
    const ids = taken.map(({ id }) => id);
    await database.run(`${deleteRows(schema, ids)}; commit`);
    scan.passed(rows.at(-1)?.id ?? "0");
    this.#done = taken.map(toMark);
    const waits = results.find((result) => typeof result === "object" && result.isPassing);
    return {
      moved: taken.length + rejected.length,
      waits: typeof waits === "object" ? waits.reason : null,
      isFull: rows.length === roundRows && waits === undefined,
    };
  }

  /** Publishes rows in parts, so that other callers do not wait for all of them. */
  async #publish(rows: readonly OutboxRow[]): Promise<RowResult[]> {
    const results: RowResult[] = [];
    for (const part of splitByWeight(await this.#readInputs(rows))) {
      const inputs = part.flatMap(({ input }) => (input instanceof Refusal ? [] : [input]));
      const marks = part.flatMap(({ row, input }) => (input instanceof Refusal ? [] : [toMark(row)]));
      const published = inputs.length === 0 ? [] : await this.#publishPart(inputs, marks);
      let next = 0;
      for (const { input } of part)
        results.push(input instanceof Refusal ? toRowResult(input) : (published[next++] ?? "taken"));
    }
    return results;
  }

  async #publishPart(inputs: readonly MessageInput[], rows: readonly Mark[]): Promise<readonly RowResult[]> {
    const { store, publishing } = this.#parts;
    const done = this.#done;
    this.#assertFewMarks(rows);
    const results = await store.execute("publishRows", {
      ...this.#leased(),
      ...{ inputs, rows, done, maxQueues: publishing.maxQueues },
    });
    if (results === null) throw new LeaseLost();
    this.#setMarks(
      done,
      rows.filter((_, at) => results[at] === "taken"),
    );
    return results;
  }

  /** Throws `OutboxFailure` if these rows would bring too many marks. */
  #assertFewMarks(rows: readonly Mark[]): void {
    const kept = new Set(this.#marks.map(([, key]) => key));
    for (const [, key] of this.#done) kept.delete(key);
    const added = rows.filter(([, key]) => !kept.has(key)).length;
    if (added > 0 && kept.size + added > maxMarks)
      throw new OutboxFailure("the database keeps rows that were deleted");
  }

  #setMarks(done: readonly Mark[], added: readonly Mark[]): void {
    const gone = new Set(done.map(([, key]) => key));
    const known = new Set(this.#marks.map(([, key]) => key));
    this.#marks = [
      ...this.#marks.filter(([, key]) => !gone.has(key)),
      ...added.filter(([, key]) => !known.has(key)),
    ];
    this.#done = [];
  }

  /** Removes the marks of rows that are gone. */
  async #forgetDone(): Promise<void> {
    await this.#publishPart([], []);
  }

  /** Returns the message of each row, or why it has none. Other work gets a turn in between. */
  async #readInputs(rows: readonly OutboxRow[]): Promise<ReadRow[]> {
    const groups = new Map<string, Promise<GroupTarget>>();
    const read: ReadRow[] = [];
    for (const row of rows) {
      if (read.length % 16 === 15) await new Promise((resolve) => setImmediate(resolve));
      read.push({ row, input: await this.#readInputOrRefusal(row, groups) });
    }
    return read;
  }

  async #readInputOrRefusal(row: OutboxRow, groups: GroupCache): Promise<MessageInput | Refusal> {
    try {
      return await this.#readInput(row, groups);
    } catch (error) {
      // A failure of the store concerns all rows.
      if (error instanceof Refusal && !isUnavailable(error)) return error;
      throw error;
    }
  }

  async #readInput(row: OutboxRow, groups: GroupCache): Promise<MessageInput> {
    const { destination, is_workflow: isWorkflow, body } = row;
    if (isWorkflow || isUrl(destination)) return readRow(row, this.#setting.name, null);
    const { store }: { store: Store } = this.#parts;
    const known = groups.get(destination) ?? findGroup(store, this.#outbox.account, destination);
    groups.set(destination, known);
    const target = await known;
    assertFanOut(target.group, { messages: 0, bytes: 0 }, body ?? new Uint8Array());
    return readRow(row, this.#setting.name, target);
  }

  readonly #leased = () => ({ ...this.#named(), number: this.#number ?? 0 });

  /** Notes what is in the database, keeps the lease, and finds marks whose rows are gone. */
  async #note(database: OutboxDatabase): Promise<void> {
    const { store, clock } = this.#parts;
    const { schema, owner } = this.#setting;
    const left = this.#marks.filter((mark) => !this.#done.includes(mark));
    if (left.length > 0) {
      const found = await database.run<{ id: string; key: string }>(findRows(schema, left));
      const present = new Set(found.map(({ key }) => checkKey(key)));
      this.#done = this.#marks.filter(([, key]) => !present.has(key));
    }
    const [counts] = await database.run<Parameters<typeof checkCounts>[0] & object>(readCounts(schema));
    const found = checkCounts(counts, clock.now());
    if (found.owner !== owner) throw new OutboxFailure(foreignOwner);
    const status = { ...this.#error, ...found.status };
    const { isKept } = await store.execute("noteOutbox", { ...this.#leased(), status });
    if (!isKept) throw new LeaseLost();
  }

  /** Notes why rows wait, or that none waits any more. */
  async #setError(error: string | null): Promise<void> {
    if (error === this.#error.error) return;
    this.#error = { error, errorAt: error === null ? null : this.#parts.clock.now() };
    await this.#parts.store.execute("noteOutbox", { ...this.#leased(), status: this.#error });
  }

  /** Notes why the outbox does not work. A failure of the store of the server says nothing about it. */
  async #noteFailure(error: unknown): Promise<void> {
    if (error instanceof LeaseLost || isUnavailable(error) || this.#number === null) return;
    // The connection was closed because the relay stops.
    if (this.#cut.signal.aborted) return;
    const isKnown = error instanceof OutboxFailure || error instanceof Refusal;
    if (!isKnown) this.#parts.logFailure(`the outbox ${this.#setting.name} failed; it is tried again`, error);
    const text = isKnown ? error.message : "the server has a fault; its log says which";
    await ignoreFailure(this.#setError(text.slice(0, 500)));
  }

  async #giveBack(): Promise<void> {
    if (this.#number === null) return;
    const leased = this.#leased();
    this.#number = null;
    const { store } = this.#parts;
    await ignoreFailure(store.execute("noteOutbox", { ...leased, status: {}, isEnd: true }));
  }
}

/** Waits for a note. If it fails, the next one says the same. */
const ignoreFailure = (note: Promise<unknown>): Promise<unknown> => note.catch(() => undefined);
