import { logBodyBytes, memory } from "../../core/values/limits.ts";
import type { AccountId, HeaderList, MessageId } from "../../core/values/basics.ts";
import type { StoredMessage } from "../../core/model/message.ts";
import type { LogRow } from "../../core/model/logRow.ts";
import { noBytes } from "../../core/values/basics.ts";
import type { Child, KnownRun } from "../../core/workflows/log/view.ts";
import type { Run, Step } from "../../core/model/run.ts";
import {
  formatStepKey,
  initialStepKey,
  listRunBounds,
  parseStepId,
  readRunPart,
  toStepId,
} from "../../core/model/stepId.ts";
import type { RunQuery } from "./runs.ts";
import { findRuns, dropMissingDeadLetters } from "./runs.ts";
import type { StorageReads } from "../layout/storageReads.ts";
import { toKeys } from "../layout/storageReads.ts";
import { withKeptLog } from "./wholeLog.ts";

/**
 * A request for a page of runs. `byteLimit`: the maximum size of the page in bytes, for callers that combine
 * pages.
 */
export type RunLogQuery = RunQuery & { byteLimit?: number };
/** A page of runs. `bytes` is its approximate size. */
export type RunLogPage = { runs: KnownRun[]; cursor: string | null; bytes: number };

/**
 * Returns a page of runs with everything that their logs show. The page ends early if it would exceed the
 * maximum size. If the first run alone exceeds the maximum size, the bodies that do not fit are left out.
 */
export async function readRunLogPage(storageReads: StorageReads, query: RunLogQuery): Promise<RunLogPage> {
  const { account, byteLimit = memory.page } = query;
  const page = await findRuns(storageReads, query);
  const found = await dropMissingDeadLetters(storageReads, account, page.runs);
  const outlines = await readRunsWithoutBodies(storageReads, found, { account, byteLimit });
  const sizes = await readSizes(storageReads, account, outlines);
  const count = Math.max(1, countFitting(outlines, sizes, byteLimit));
  const fitting: FittingRun[] = [];
  let bytesLeft = byteLimit;
  for (const outline of outlines.slice(0, count)) {
    const run = fitRun(outline, sizes, bytesLeft);
    fitting.push(run);
    bytesLeft -= run.bytes;
  }
  const runs = await withBodies(storageReads, fitting, { account, bytesLeft });
  const isWhole = fitting.length === page.runs.length;
  return {
    runs,
    cursor: isWhole ? page.cursor : (fitting.at(-1)?.run.id ?? page.cursor),
    bytes: byteLimit - bytesLeft,
  };
}

/** A run without bodies. */
type RunWithoutBodies = Pick<
  KnownRun,
  "run" | "waiters" | "messages" | "log" | "storedMessages" | "lineage"
> & {
  steps: Step[];
  children: Run[];
  cut: Set<string>;
};

/** The maximum number of history rows that are read for one page. The first run is always read as a whole. */
const maxSteps = 10_000;
const maxWaiters = 1_000;
const maxChildren = 200;
const chunk = 500;

/** Returns the first runs of a page, as many as have at most `maxSteps` steps together, but at least one. */
async function readRunsWithoutBodies(
  storageReads: StorageReads,
  runs: readonly Run[],
  { account, byteLimit }: { account: AccountId; byteLimit: number },
): Promise<RunWithoutBodies[]> {
  const activeKeys = toKeys(
    account,
    runs.flatMap(({ state, runId }) => (state === "RUN_STARTED" ? [runId] : [])),
  );
  const active = new Map(
    (await storageReads.rows("activeRuns", activeKeys)).map(({ run, steps }) => [run, steps]),
  );
  let steps = 0;
  const withinStepLimit = runs.filter(
    (run, index) => (steps += active.get(run.id) ?? run.steps) <= maxSteps || index === 0,
  );
  return Promise.all(
    withinStepLimit.map((run) => readRunWithoutBodies(storageReads, run, byteLimit / withinStepLimit.length)),
  );
}

async function readRunWithoutBodies(
  storageReads: StorageReads,
  run: Run,
  byteLimit: number,
): Promise<RunWithoutBodies> {
  const { account } = run;
  const isActive = run.state === "RUN_STARTED";
  const cut = new Set<string>();
  const [steps, waiters, messages] = await Promise.all([
    readSteps(storageReads, run, { byteLimit, cut }),
    isActive ? storageReads.range("waiters", { account, ...listRunBounds(run.id), limit: maxWaiters }) : [],
    isActive ? storageReads.runMessages(account, run.id) : [],
  ]);
  const { failure } = run;
  const ids = [...steps, ...(failure ? [failure] : []), ...(failure?.callback ? [failure.callback] : [])].map(
    ({ messageId }) => messageId,
  );
  const loggedIds = [...new Set([...ids, ...messages.map(({ id }) => id)])];
  const ownSettings = steps.filter(({ callType }) => callType === "toCallback" || !run.features.captured);
  const childKeys = [...waiters, ...steps.flatMap(({ waited }) => waited ?? [])].flatMap(
    ({ child }) => child?.run ?? [],
  );
  const related = [run.origin, run.continuedBy?.key].flatMap((key) => key ?? []);
  const [log, storedMessages, children, relatedRuns] = await Promise.all([
    withKeptLog(storageReads).messageLogs({
      account,
      messageIds: loggedIds,
      limit: loggedIds.length > 2_000 ? 5 : loggedIds.length > 200 ? 20 : 100,
    }),
    storageReads.rows(
      "storedMessages",
      toKeys(
        account,
        ownSettings.map(({ messageId }) => messageId),
      ),
      { bodies: false },
    ),
    storageReads.rows("runs", toKeys(account, childKeys.slice(0, maxChildren)), { bodies: false }),
    storageReads.rows("runs", toKeys(account, related), { bodies: false }),
  ]);
  const findRelated = (key: string | null | undefined): Run | null =>
    relatedRuns.find(({ id }) => id === key) ?? null;
  return {
    run,
    steps,
    waiters,
    messages,
    log: sortById(log),
    storedMessages: sortById(storedMessages),
    children: sortById(children),
    cut,
    lineage: { origin: findRelated(run.origin), next: findRelated(run.continuedBy?.key) },
  };
}

const sortById = <Row extends { id: string }>(rows: readonly Row[]): Row[] =>
  rows.toSorted((a, b) => (a.id < b.id ? -1 : 1));

/**
 * Returns the history in order, without bodies. If all headers together exceed `byteLimit`, the headers of
 * the last steps are omitted, and these steps are marked as cut.
 */
async function readSteps(
  storageReads: StorageReads,
  { account, id }: Run,
  { byteLimit, cut }: { byteLimit: number; cut: Set<string> },
): Promise<Step[]> {
  const found: Step[] = [];
  let bytesLeft = byteLimit;
  const { after: start, before } = listRunBounds(id);
  for (let after = start; ;) {
    const rows = await storageReads.range("steps", { account, after, before, limit: chunk, bodies: false });
    for (const step of rows) {
      bytesLeft -= countHeaderBytes(step.headers);
      if (bytesLeft < 0) cut.add(step.id);
      found.push(bytesLeft < 0 ? { ...step, headers: [] } : step);
    }
    const last = rows.at(-1);
    if (!last || rows.length < chunk) return found.sort((a, b) => a.position - b.position);
    after = last.id;
  }
}

const countHeaderBytes = (headers: HeaderList): number =>
  headers.reduce((sum, [name, value]) => sum + name.length + value.length + 8, 0);

/** The sizes of bodies in bytes, by the ids of their rows. */
type BodySizes = ReadonlyMap<string, number>;

const listRunKeys = (account: AccountId, outlines: readonly Pick<RunWithoutBodies, "run">[]) =>
  toKeys(
    account,
    outlines.map(({ run }) => run.id),
  );

async function readSizes(
  storageReads: StorageReads,
  account: AccountId,
  outlines: readonly RunWithoutBodies[],
): Promise<BodySizes> {
  const steps = outlines.flatMap(({ steps }) => steps.map(({ id }) => id));
  const payloads = outlines.flatMap(({ children }) => children.map(({ id }) => toStepId(id, initialStepKey)));
  const found = await Promise.all([
    storageReads.sizes("runs", listRunKeys(account, outlines)),
    storageReads.sizes("steps", toKeys(account, [...steps, ...payloads])),
    storageReads.sizes("storedMessages", toKeys(account, outlines.flatMap(listUnansweredCalls))),
  ]);
  return new Map(found.flatMap((sizes) => sizes.entries().toArray()));
}

/**
 * Returns the requests to third parties that have no answer in the history. Only their stored messages are
 * needed, because an answer contains its request.
 */
function listUnansweredCalls({ steps }: Pick<RunWithoutBodies, "steps">): MessageId[] {
  const slots = new Set(steps.map(({ id }) => readRunPart(id)));
  return steps.flatMap(({ id, callType, messageId }) =>
    callType === "toCallback" && !slots.has(formatStepKey({ kind: "answer", number: parseStepId(id).number }))
      ? [messageId]
      : [],
  );
}

/** The bytes of a step in a response, without its body and its headers. */
const stepBytes = 500;

const countStepBytes = (step: Step, { run }: RunWithoutBodies, sizes: BodySizes): number =>
  stepBytes +
  (sizes.get(step.id) ?? 0) +
  (sizes.get(step.messageId) ?? 0) +
  countHeaderBytes(step.headers) +
  countHeaderBytes(run.settings.headers);

/** Returns how many of the first runs fit on a page with all their bodies. */
function countFitting(outlines: readonly RunWithoutBodies[], sizes: BodySizes, byteLimit: number): number {
  let bytesLeft = byteLimit;
  const firstTooLarge = outlines.findIndex((outline) => {
    bytesLeft -= outline.steps.reduce(
      (sum, step) => sum + countStepBytes(step, outline, sizes),
      sizes.get(outline.run.id) ?? 0,
    );
    bytesLeft -= outline.children.reduce(
      (sum, { id }) => sum + (sizes.get(toStepId(id, initialStepKey)) ?? 0),
      0,
    );
    return bytesLeft < 0;
  });
  return firstTooLarge < 0 ? outlines.length : firstTooLarge;
}

/** A run, and the ids of the rows whose bodies are loaded. */
type FittingRun = RunWithoutBodies & { bodies: string[]; payloads: string[]; bytes: number };

/**
 * Selects the bodies of a run in order, as far as they fit. If a body does not fit, later bodies may still
 * fit.
 */
function fitRun(outline: RunWithoutBodies, sizes: BodySizes, byteLimit: number): FittingRun {
  const { run, steps, children } = outline;
  const cut = new Set(outline.cut);
  let bytes = sizes.get(run.id) ?? 0;
  const bodies: string[] = [];
  for (const step of steps) {
    const cost = countStepBytes(step, outline, sizes);
    if (bytes + cost > byteLimit || cut.has(step.id)) cut.add(step.id);
    else bodies.push(step.id);
    bytes += cut.has(step.id) ? stepBytes : cost;
  }
  const payloads: string[] = [];
  for (const { id } of children) {
    const payload = toStepId(id, initialStepKey);
    const cost = sizes.get(payload) ?? 0;
    if (bytes + cost > byteLimit) continue;
    bytes += cost;
    payloads.push(payload);
  }
  return { ...outline, cut, bodies, payloads, bytes };
}

async function withBodies(
  storageReads: StorageReads,
  fitting: readonly FittingRun[],
  { account, bytesLeft }: { account: AccountId; bytesLeft: number },
): Promise<KnownRun[]> {
  const errors = fitting.flatMap(({ log, run }) =>
    log
      .filter(({ states }) => states.includes("ERROR") || (run.keepResponse && states.includes("DELIVERED")))
      .map(({ id }) => id),
  );
  // The newest errors are shown as far as they fit, because the last failure is the most useful.
  const shown = errors.slice(-Math.max(10, Math.floor(bytesLeft / logBodyBytes)));
  const isLeftOut = new Set(errors.slice(0, -shown.length));
  const requests = fitting.flatMap((run) => {
    const calls = new Map(run.steps.map((step) => [step.messageId, step.id]));
    return listUnansweredCalls(run).filter((id) => !run.cut.has(calls.get(id) ?? ""));
  });
  const [runs, steps, storedMessages, log] = await Promise.all([
    storageReads.rows("runs", listRunKeys(account, fitting)),
    storageReads.rows(
      "steps",
      toKeys(
        account,
        fitting.flatMap(({ bodies, payloads }) => [...bodies, ...payloads]),
      ),
    ),
    storageReads.rows("storedMessages", toKeys(account, requests)),
    withKeptLog(storageReads).rows("log", toKeys(account, shown)),
  ]);
  const loaded = {
    runs: mapById(runs),
    steps: mapById(steps),
    storedMessages: mapById(storedMessages),
    log: mapById(log),
    isLeftOut,
  };
  // Rows that have been removed since are shown without their bodies.
  return fitting.map((run) => toKnownRun(run, loaded));
}

type LoadedBodies = {
  runs: Map<string, Run>;
  steps: Map<string, Step>;
  storedMessages: Map<string, StoredMessage>;
  log: Map<string, LogRow>;
} & {
  /** The ids of log entries whose bodies do not fit. */
  isLeftOut: ReadonlySet<string>;
};

const mapById = <Row extends { id: string }>(rows: readonly Row[]): Map<string, Row> =>
  new Map(rows.map((row) => [row.id, row]));

function toKnownRun(
  { run, steps, waiters, messages, log, storedMessages, children, lineage, cut, payloads }: FittingRun,
  loaded: LoadedBodies,
): KnownRun {
  const loadedPayloads = new Set(payloads);
  return {
    waiters,
    messages,
    lineage,
    cut,
    run: { ...run, body: loaded.runs.get(run.id)?.body ?? noBytes },
    steps: steps.map((step) => ({ ...step, body: loaded.steps.get(step.id)?.body ?? noBytes })),
    log: log.map(
      (row) => loaded.log.get(row.id) ?? (loaded.isLeftOut.has(row.id) ? { ...row, cut: true } : row),
    ),
    storedMessages: storedMessages.map((message) => loaded.storedMessages.get(message.id) ?? message),
    children: children.map((child): Child => {
      const key = toStepId(child.id, initialStepKey);
      return { run: child, payload: loadedPayloads.has(key) ? (loaded.steps.get(key)?.body ?? null) : null };
    }),
  };
}
