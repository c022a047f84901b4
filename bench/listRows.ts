/**
 * Rows of a large account, written to an empty store: unfinished messages, dead letters, a long log, runs
 * that failed, and runs that wait.
 */
import { keyGate } from "../src/engine/core/admission/gate.ts";
import { newLimiter } from "../src/engine/core/admission/limiter.ts";
import type { Rows, TableName } from "../src/engine/core/decision/command.ts";
import type { LogState } from "../src/engine/core/model/logRow.ts";
import type { MessageState } from "../src/engine/core/model/messageState.ts";
import type { StoredMessage } from "../src/engine/core/model/message.ts";
import { makeStoredMessage, noMessageSettings } from "../src/engine/core/model/message.ts";
import { noBytes } from "../src/engine/core/values/basics.ts";
import { noSendSettings } from "../src/engine/core/model/sendSettings.ts";
import type { Run } from "../src/engine/core/model/run.ts";
import {
  listTimeIndexIds,
  makeTimeIndexKeys,
  readIndexInterval,
} from "../src/engine/core/search/timeIndex.ts";
import { findCause } from "../src/engine/core/model/cause.ts";
import { makeTagIds, makeTags, toTag } from "../src/engine/core/search/tags.ts";
import { createIdGenerator } from "../src/engine/core/values/ids.ts";
import { day } from "../src/engine/core/values/time.ts";
import { parseAddress } from "../src/engine/core/values/url.ts";
import type { Millis } from "../src/engine/core/values/basics.ts";
import type { StoreCountName } from "../src/engine/core/explain/storeCounts.ts";
import { readStoreCount } from "../src/engine/core/explain/storeCounts.ts";
import { addStoreCounts } from "../src/engine/store/sql/counts.ts";
import type { DatabaseConnection } from "../src/engine/store/sql/database.ts";
import { getStatements } from "../src/engine/store/sql/statements.ts";
import { type Value, tables } from "../src/engine/store/catalog/tables.ts";

/** The account of `waypost dev`. */
const account = "defaultUser";

/** How many rows there are. Each failed run has a dead letter in addition. */
export type RowCounts = { messages: number; deadLetters: number; logRows: number; runs: number };

/** The kinds of messages. One unfinished message and one dead letter are needles. */
type Kind = "needle" | "common" | "plain";

/**
 * The time between two messages. A million of them end in less than an hour, because a server does not start
 * on a store that is more than an hour ahead of its clock.
 */
const spacing: Millis = 7;

/** Fills an empty store with rows, the oldest first. The middle one is of this moment. */
export async function writeRows(
  connection: DatabaseConnection,
  counts: RowCounts,
  note: (text: string) => void,
): Promise<void> {
  const writer = new RowWriter(connection);
  const most = Math.max(counts.messages, counts.deadLetters, counts.runs);
  const start = Date.now() - (most * spacing) / 2;
  // A dead letter has two log rows. All others belong to messages that were delivered.
  const perDelivered = Math.floor((counts.logRows - 2 * counts.deadLetters) / most);
  for (let n = 0; n < most; n++) {
    const time = start + n * spacing;
    addDelivered(writer, { n, time, rows: perDelivered });
    if (n < counts.deadLetters) addDeadLetter(writer, { n, time: time + 2, isNeedle: n === 10 });
    if (n < counts.messages)
      addUnfinished(writer, { n, time: time + 6, isNeedle: n === counts.messages / 2 });
    if (n < counts.runs) addRun(writer, n, time + 8);
    if (n % 5_000 === 4_999) await writer.flush();
    if (n % 100_000 === 99_999) note(`${n + 1} of ${most}`);
  }
  addCancelled(writer, start + most * spacing);
  writer.put("limiters", newLimiter({ account, gate: keyGate("busy") }, start));
  await writer.flush();
  await writer.writeCounts();
}

/** Collects rows with their tags and index entries, and writes them all at once. */
class RowWriter {
  /** A generator never goes back in time, so each store has its own. */
  readonly newId = createIdGenerator(Math.random);
  readonly #connection: DatabaseConnection;
  readonly #rows = new Map<TableName, Value[][]>();
  readonly #seen = new Set<string>();
  readonly #counts = new Map<StoreCountName, number>();

  constructor(connection: DatabaseConnection) {
    this.#connection = connection;
  }

  put<T extends TableName>(name: T, row: Rows[T]): void {
    const rows = this.#rows.get(name) ?? [];
    this.#rows.set(name, rows);
    rows.push(Object.values(tables[name].write(row)));
    const counted = name === "messages" ? readStoreCount(row as MessageState) : countedTables.get(name);
    if (counted) this.#counts.set(counted, (this.#counts.get(counted) ?? 0) + 1);
    for (const id of makeTagIds[name]?.(row) ?? []) this.put("tags", { account, id });
  }

  /** Notes that there is an entry with this id about a message. */
  indexTime(id: string, message: StoredMessage): void {
    for (const indexId of listTimeIndexIds(makeTimeIndexKeys(message), readIndexInterval(id))) {
      if (this.#seen.has(indexId)) continue;
      this.#seen.add(indexId);
      this.put("timeIndex", { account, id: indexId });
    }
  }

  async flush(): Promise<void> {
    await this.#connection.query("begin", []);
    for (const [name, values] of this.#rows) {
      const { insert, types } = getStatements(this.#connection.dialect, name);
      await this.#connection.each(insert, types, values);
    }
    await this.#connection.query("commit", []);
    this.#rows.clear();
  }

  /** Writes how many rows there are, as a server does in each batch. */
  async writeCounts(): Promise<void> {
    await addStoreCounts(this.#connection, this.#counts);
  }
}

/** The tables whose rows all count as the same. */
const countedTables = new Map<TableName, StoreCountName>([
  ["deadLetters", "deadLetters"],
  ["activeRuns", "activeRuns"],
  ["waiters", "waiters"],
]);

const needle = {
  labels: ["needle"],
  queue: "needle",
  scheduleId: "scd_needle",
  group: "needle",
  callerIp: "192.0.2.99",
};

type Made = { n: number; time: number; kind: Kind };

/** Returns a message. One in ten has a common label and a common key. Each of 500 hosts has thousands. */
function makeMessage(writer: RowWriter, { n, time, kind }: Made): StoredMessage {
  const key = kind === "needle" ? "needle" : kind === "common" ? "common" : null;
  const plain = {
    labels: kind === "common" ? ["common"] : [],
    queue: null,
    scheduleId: null,
    group: null,
    callerIp: "192.0.2.1",
  };
  return makeStoredMessage(
    {
      ...noMessageSettings,
      ...noSendSettings,
      brand: "svc",
      headers: [["Content-Type", "application/json"]],
      url: kind === "needle" ? "https://needle.example/rare" : `https://shop${n % 500}.example/hook`,
      body: new Uint8Array(200).fill(97),
      ...(kind === "needle" ? needle : plain),
      flowControl: key === null ? null : { key, parallelism: 5, rate: null, period: null },
    },
    {
      ...{ account, id: writer.newId("msg", time), createdAt: time, notBefore: time },
      ...{ retries: 3, timeout: 1_000, startedAtOnce: true },
    },
  );
}

const kindOf = (n: number): Kind => (n % 10 === 0 ? "common" : "plain");

type Entry = { states: LogState[]; time: number; dlqId?: string };

function addLog(writer: RowWriter, message: StoredMessage, { states, time, dlqId }: Entry): void {
  const id = writer.newId("log", time);
  writer.indexTime(id, message);
  const hasFailed = states[0] === "ERROR";
  const hasEnded = hasFailed || states[0] === "DELIVERED";
  const host = new URL(message.url).host;
  writer.put("log", {
    ...{
      account,
      id,
      messageId: message.id,
      time,
      states,
      status: hasEnded ? (hasFailed ? 500 : 200) : null,
    },
    ...{ error: null, nextDueAt: null, headers: [], body: noBytes, dlqId: dlqId ?? null },
    tags: makeTags(message),
    ...(hasEnded && {
      timing: { startedAt: time - 40, connect: 5, firstByte: 20, duration: 40 },
      ...{ node: "nod_1", host },
    }),
  });
}

function accept(writer: RowWriter, message: StoredMessage): void {
  writer.put("storedMessages", message);
  writer.indexTime(message.id, message);
}

/** Adds a message that was delivered after several leases, so that it has this many log rows. */
function addDelivered(writer: RowWriter, { n, time, rows }: { n: number; time: number; rows: number }): void {
  const message = makeMessage(writer, { n, time, kind: kindOf(n) });
  accept(writer, message);
  for (let row = 1; row < rows; row++) addLog(writer, message, { states: ["ACTIVE"], time: time + row });
  addLog(writer, message, { states: ["DELIVERED"], time: time + rows });
}

const words = ["stock", "user", "order", "price", "room", "time", "disk", "luck", "idea"] as const;

type Failing = { n: number; time: number; isNeedle: boolean };

function addDeadLetter(writer: RowWriter, { n, time, isNeedle }: Failing): void {
  const message = makeMessage(writer, { n, time, kind: isNeedle ? "needle" : kindOf(n) });
  accept(writer, message);
  addLog(writer, message, { states: ["ERROR", "RETRY"], time: time + 1 });
  const id = writer.newId("dlq", time + 2);
  addLog(writer, message, { states: ["ERROR", "FAILED"], time: time + 3, dlqId: id });
  const response = { status: isNeedle ? 418 : 500, error: null, body: Buffer.from(`no ${words[n % 9]}`) };
  const cause = findCause({ ...response, url: message.url, redaction: null });
  writer.put("deadLetters", {
    ...{ account, id, messageId: message.id, ...response, headers: [["A", "b"]] },
    ...{ retried: 1, failureCallback: null, cause: cause.error },
    tags: [
      ...[...makeTags(message), toTag.url(message.url), toTag.callerIp(message.callerIp ?? "")],
      toTag.cause(cause.id),
    ],
  });
}

function addUnfinished(writer: RowWriter, { n, time, isNeedle }: Failing): void {
  const message = {
    ...makeMessage(writer, { n, time, kind: isNeedle ? "needle" : kindOf(n) }),
    startedAtOnce: false,
  };
  accept(writer, message);
  const state = makeState(n);
  writer.put("messages", {
    ...{ account, id: message.id, lostAttempts: 0, size: 200, host: new URL(message.url).host },
    ...{ reportsOutcome: false, queue: message.queue, flowControlKey: message.flowControl?.key ?? null },
    ...{ slot: null, run: null, tags: makeTags(message), timeKeys: makeTimeIndexKeys(message) },
    endpoint: parseAddress(message.url).endpoint,
    ...state,
    ...(state.queue !== undefined && { slot: message.id }),
  });
  if (typeof state.queue === "string")
    writer.put("queueSlots", { account, id: message.id, queue: state.queue, holders: 1 });
}

type ListedState = Pick<MessageState, "state" | "dueAt" | "leasedBy" | "waitlist" | "attempts"> &
  Partial<Pick<MessageState, "queue" | "flowControlKey">>;

/**
 * One message in a thousand is in flight and holds a place of a queue and a key. One in a thousand waits for
 * one of 1,000 keys. One in 50 is retried.
 */
function makeState(n: number): ListedState {
  const far = Date.now() + 10 * 365 * day;
  const due = { dueAt: far + (n % 7_919) * 1_000, leasedBy: null, waitlist: null };
  const isRetried = n % 50 === 3;
  if (n % 1_000 === 1)
    return {
      ...{ ...due, state: "active", leasedBy: "nod_1", attempts: 0 },
      ...{ queue: "busy", flowControlKey: "busy" },
    };
  if (n % 1_000 === 2)
    return { ...due, state: "held", dueAt: null, waitlist: `key:k${n % 2_000}`, attempts: 0 };
  return { ...due, state: "pending", attempts: isRetried ? 1 : 0 };
}

const features = { lazyFetch: false, initialBody: true, detect: false, captured: true };

/** Adds a run: three in four failed, with a dead letter, and one in four waits for one of 100 events. */
function addRun(writer: RowWriter, n: number, time: number): void {
  const id = writer.newId("run", time);
  const runId = `wfr_${n}`;
  const hasFailed = n % 4 !== 0;
  const url = `https://flow${n % 50}.example/work`;
  const message = { ...makeMessage(writer, { n, time, kind: "plain" }), url };
  const dlqId = writer.newId("dlq", time + 1);
  const run: Run = {
    ...{ account, id, runId, url, createdAt: time, brand: "svc", features, labels: [] },
    ...{ settings: noSendSettings, redaction: null, callerIp: "192.0.2.1", invoker: null, origin: null },
    ...{ steps: 3, body: noBytes, endedAt: hasFailed ? time + 100 : null },
    state: hasFailed ? "RUN_FAILED" : "RUN_STARTED",
    failure: hasFailed
      ? {
          ...{ messageId: message.id, dlqId, error: `no product ${n % 30}`, status: 500, headers: [] },
          ...{ unfinished: [], callback: null },
        }
      : null,
  };
  writer.put("runs", run);
  accept(writer, message);
  if (hasFailed) addFailedRun(writer, run, { message, dlqId });
  else addWaiter(writer, run, { message, event: `event-${n % 100}` });
}

type OfRun = { message: StoredMessage; dlqId: string };

function addFailedRun(writer: RowWriter, run: Run, { message, dlqId }: OfRun): void {
  const { id: key, runId, createdAt, url } = run;
  writer.put("deadLetters", {
    ...{ account, id: dlqId, messageId: message.id, status: 500, headers: [], body: noBytes },
    ...{ error: run.failure?.error ?? null, retried: 3, failureCallback: null },
    run: { key, runId, createdAt, url, failureUrl: null },
    tags: [toTag.workflow, toTag.run(runId), toTag.url(url), toTag.callerIp("192.0.2.1")],
  });
}

function addWaiter(
  writer: RowWriter,
  run: Run,
  { message, event }: { message: StoredMessage; event: string },
) {
  const { id: key, runId, url, createdAt } = run;
  writer.put("activeRuns", {
    ...{
      account,
      runId,
      run: key,
      steps: 1,
      size: 200,
      firstMessage: message.id,
      waiting: 1,
      lastCall: null,
    },
  });
  writer.put("waiters", {
    ...{ account, id: `${key}/1`, run: key, runId, kind: "event", event, createdAt },
    ...{ dueAt: Date.now() + 10 * 365 * day, url, headers: [], given: [], timeout: "3650d" },
    ...{ timeoutUrl: url, timeoutHeaders: [], timeoutGiven: [], child: null },
    step: { stepId: 1, stepName: "wait", stepType: "Wait", waitEventId: event },
  });
}

/** Adds one cancelled message, which is rare here. */
function addCancelled(writer: RowWriter, time: number): void {
  const message = makeMessage(writer, { n: 0, time, kind: "plain" });
  accept(writer, message);
  addLog(writer, message, { states: ["CANCEL_REQUESTED", "CANCELLED"], time });
}
