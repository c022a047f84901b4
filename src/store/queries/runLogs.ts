import { logBodyBytes, memory } from "../../core/values/limits.ts";
import type { AccountId, Envelope, HeaderList, LogRow, MessageId } from "../../core/model/message.ts";
import { noBytes } from "../../core/model/message.ts";
import type { Child, KnownRun } from "../../core/workflows/log/view.ts";
import type { Run, Step } from "../../core/model/run.ts";
import { formatStepKey, initialStepKey, listRunBounds, parseStepId, readRunPart, toStepId } from "../../core/model/stepId.ts";
import { passesRun } from "../../core/search/runFilter.ts";
import type { RunQuery } from "./runs.ts";
import { runsFound, withDeadLetters } from "./runs.ts";
import type { Shelf } from "./storageReads.ts";
import { keysOf } from "./storageReads.ts";
import { wholeLog } from "./wholeLog.ts";

/** `messageId`: only the run that this message belongs to. `room`: bytes, for whoever puts several pages together. */
export type RunLogQuery = RunQuery & { messageId?: MessageId; room?: number };
/** `bytes`: what it takes up, roughly. */
export type RunLogPage = { runs: KnownRun[]; cursor: string | null; bytes: number };

/**
 * A page of runs with all that their logs are made of. It ends early rather than become larger than a page may be; of a
 * run that is larger by itself, what no longer fits is cut.
 */
export async function runLogPage(shelf: Shelf, query: RunLogQuery): Promise<RunLogPage> {
  const { account, room = memory.page } = query;
  const page = await pageOf(shelf, query);
  const found = await withDeadLetters(shelf, account, page.runs);
  const outlines = await outlinesOf(shelf, account, found, room);
  const sizes = await sizesOf(shelf, account, outlines);
  const count = Math.max(1, countFitting(outlines, sizes, room));
  const fitting: Fitting[] = [];
  let left = room;
  for (const outline of outlines.slice(0, count)) {
    const one = fit(outline, sizes, left);
    fitting.push(one);
    left -= one.bytes;
  }
  const runs = await filled(shelf, account, fitting, left);
  const isWhole = fitting.length === page.runs.length;
  return { runs, cursor: isWhole ? page.cursor : (fitting.at(-1)?.run.id ?? page.cursor), bytes: room - left };
}

async function pageOf(shelf: Shelf, query: RunLogQuery): Promise<{ runs: Run[]; cursor: string | null }> {
  const { account, filter, cursor, messageId } = query;
  if (messageId === undefined) return runsFound(shelf, query);
  const [envelope] = await shelf.rows("envelopes", [[account, messageId]], { bodies: false });
  const key = envelope?.run?.run;
  const found =
    key === undefined || (cursor !== null && key >= cursor) ? [] : await shelf.rows("runs", [[account, key]], { bodies: false });
  return { runs: found.filter((run) => passesRun(filter, run)), cursor: null };
}

/** A run without any bodies. */
type Outline = Pick<KnownRun, "run" | "waiters" | "messages" | "log" | "envelopes" | "kin"> & {
  steps: Step[];
  children: Run[];
  cut: Set<string>;
};

/** As many rows of histories are looked at for one page; of the first run all there are. */
const mostSteps = 10_000;
const mostWaiters = 1_000;
const mostChildren = 200;
const chunk = 500;

/** The first runs of a page, as many as have few enough steps together. */
async function outlinesOf(shelf: Shelf, account: AccountId, runs: readonly Run[], room: number): Promise<Outline[]> {
  const going = keysOf(
    account,
    runs.flatMap(({ state, runId }) => (state === "RUN_STARTED" ? [runId] : [])),
  );
  const active = new Map((await shelf.rows("activeRuns", going)).map(({ run, steps }) => [run, steps]));
  let steps = 0;
  const few = runs.filter((run, index) => (steps += active.get(run.id) ?? run.steps) <= mostSteps || index === 0);
  return Promise.all(few.map((run) => outlineOf(shelf, account, run, room / few.length)));
}

async function outlineOf(shelf: Shelf, account: AccountId, run: Run, room: number): Promise<Outline> {
  const isGoing = run.state === "RUN_STARTED";
  const cut = new Set<string>();
  const [steps, waiters, messages] = await Promise.all([
    stepsOf(shelf, account, run, { room, cut }),
    isGoing ? shelf.range("waiters", { account, ...listRunBounds(run.id), limit: mostWaiters }) : [],
    isGoing ? shelf.messagesOfRun(account, run.id) : [],
  ]);
  const { failure } = run;
  const ids = [...steps, ...(failure ? [failure] : []), ...(failure?.callback ? [failure.callback] : [])].map(({ messageId }) => messageId);
  const told = [...new Set([...ids, ...messages.map(({ id }) => id)])];
  const ownSettings = steps.filter(({ callType }) => callType === "toCallback" || !run.features.captured);
  const invoked = [...waiters, ...steps.flatMap(({ waited }) => waited ?? [])].flatMap(({ child }) => child?.run ?? []);
  const related = [run.origin, run.continuedBy?.key].flatMap((key) => key ?? []);
  const [log, envelopes, children, kin] = await Promise.all([
    wholeLog(shelf).logsOf(account, told, told.length > 2_000 ? 5 : told.length > 200 ? 20 : 100),
    shelf.rows(
      "envelopes",
      keysOf(
        account,
        ownSettings.map(({ messageId }) => messageId),
      ),
      { bodies: false },
    ),
    shelf.rows("runs", keysOf(account, invoked.slice(0, mostChildren)), { bodies: false }),
    shelf.rows("runs", keysOf(account, related), { bodies: false }),
  ]);
  const kinAt = (key: string | null | undefined): Run | null => kin.find(({ id }) => id === key) ?? null;
  return {
    ...{ run, steps, waiters, messages, log: inOrder(log), envelopes: inOrder(envelopes), children: inOrder(children), cut },
    kin: { origin: kinAt(run.origin), next: kinAt(run.continuedBy?.key) },
  };
}

const inOrder = <Row extends { id: string }>(rows: readonly Row[]): Row[] => rows.toSorted((a, b) => (a.id < b.id ? -1 : 1));

/** The history in order, without bodies; without headers, too, where they are too many to be kept. */
async function stepsOf(shelf: Shelf, account: AccountId, { id }: Run, { room, cut }: { room: number; cut: Set<string> }): Promise<Step[]> {
  const found: Step[] = [];
  let left = room;
  const { after: start, before } = listRunBounds(id);
  for (let after = start; ;) {
    const rows = await shelf.range("steps", { account, after, before, limit: chunk, bodies: false });
    for (const step of rows) {
      left -= headerBytes(step.headers);
      if (left < 0) cut.add(step.id);
      found.push(left < 0 ? { ...step, headers: [] } : step);
    }
    const last = rows.at(-1);
    if (!last || rows.length < chunk) return found.sort((a, b) => a.position - b.position);
    after = last.id;
  }
}

const headerBytes = (headers: HeaderList): number => headers.reduce((sum, [name, value]) => sum + name.length + value.length + 8, 0);

/** Bytes of bodies, by the ids of their rows. */
type Sizes = ReadonlyMap<string, number>;

const runKeys = (account: AccountId, outlines: readonly Pick<Outline, "run">[]) =>
  keysOf(
    account,
    outlines.map(({ run }) => run.id),
  );

async function sizesOf(shelf: Shelf, account: AccountId, outlines: readonly Outline[]): Promise<Sizes> {
  const steps = outlines.flatMap(({ steps }) => steps.map(({ id }) => id));
  const payloads = outlines.flatMap(({ children }) => children.map(({ id }) => toStepId(id, initialStepKey)));
  const found = await Promise.all([
    shelf.sizes("runs", runKeys(account, outlines)),
    shelf.sizes("steps", keysOf(account, [...steps, ...payloads])),
    shelf.sizes("envelopes", keysOf(account, outlines.flatMap(unanswered))),
  ]);
  return new Map(found.flatMap((sizes) => sizes.entries().toArray()));
}

/** Requests to third parties whose answers do not tell of them. */
function unanswered({ steps }: Pick<Outline, "steps">): MessageId[] {
  const slots = new Set(steps.map(({ id }) => readRunPart(id)));
  return steps.flatMap(({ id, callType, messageId }) =>
    callType === "toCallback" && !slots.has(formatStepKey({ kind: "answer", number: parseStepId(id).number })) ? [messageId] : [],
  );
}

/** What a step comes to in an answer, besides its body and its headers. */
const stepBytes = 500;

const costOf = (step: Step, { run }: Outline, sizes: Sizes): number =>
  stepBytes + (sizes.get(step.id) ?? 0) + (sizes.get(step.messageId) ?? 0) + headerBytes(step.headers) + headerBytes(run.settings.headers);

/** How many of the first runs fit on a page as a whole. */
function countFitting(outlines: readonly Outline[], sizes: Sizes, room: number): number {
  let left = room;
  const past = outlines.findIndex((outline) => {
    left -= outline.steps.reduce((sum, step) => sum + costOf(step, outline, sizes), sizes.get(outline.run.id) ?? 0);
    left -= outline.children.reduce((sum, { id }) => sum + (sizes.get(toStepId(id, initialStepKey)) ?? 0), 0);
    return left < 0;
  });
  return past < 0 ? outlines.length : past;
}

/** A run with what of it is to be loaded. */
type Fitting = Outline & { bodies: string[]; payloads: string[]; bytes: number };

/** Takes the bodies of a run in order, as far as they fit; a large one does not keep out what comes behind it. */
function fit(outline: Outline, sizes: Sizes, room: number): Fitting {
  const { run, steps, children } = outline;
  const cut = new Set(outline.cut);
  let bytes = sizes.get(run.id) ?? 0;
  const bodies: string[] = [];
  for (const step of steps) {
    const cost = costOf(step, outline, sizes);
    if (bytes + cost > room || cut.has(step.id)) cut.add(step.id);
    else bodies.push(step.id);
    bytes += cut.has(step.id) ? stepBytes : cost;
  }
  const payloads: string[] = [];
  for (const { id } of children) {
    const payload = toStepId(id, initialStepKey);
    const cost = sizes.get(payload) ?? 0;
    if (bytes + cost > room) continue;
    bytes += cost;
    payloads.push(payload);
  }
  return { ...outline, cut, bodies, payloads, bytes };
}

async function filled(shelf: Shelf, account: AccountId, fitting: readonly Fitting[], left: number): Promise<KnownRun[]> {
  const errors = fitting.flatMap(({ log, run }) =>
    log.filter(({ states }) => states.includes("ERROR") || (run.keepResponse && states.includes("DELIVERED"))).map(({ id }) => id),
  );
  // The newest ones, as far as there is room: the last failure tells the most.
  const shown = errors.slice(-Math.max(10, Math.floor(left / logBodyBytes)));
  const isLeftOut = new Set(errors.slice(0, -shown.length));
  const requests = fitting.flatMap((one) => {
    const calls = new Map(one.steps.map((step) => [step.messageId, step.id]));
    return unanswered(one).filter((id) => !one.cut.has(calls.get(id) ?? ""));
  });
  const [runs, steps, envelopes, log] = await Promise.all([
    shelf.rows("runs", runKeys(account, fitting)),
    shelf.rows(
      "steps",
      keysOf(
        account,
        fitting.flatMap(({ bodies, payloads }) => [...bodies, ...payloads]),
      ),
    ),
    shelf.rows("envelopes", keysOf(account, requests)),
    wholeLog(shelf).rows("log", keysOf(account, shown)),
  ]);
  const loaded = { runs: byId(runs), steps: byId(steps), envelopes: byId(envelopes), log: byId(log), isLeftOut };
  // What has gone meanwhile is shown without its body.
  return fitting.map((one) => known(one, loaded));
}

type Loaded = { runs: Map<string, Run>; steps: Map<string, Step>; envelopes: Map<string, Envelope>; log: Map<string, LogRow> } & {
  /** Lines of the log for whose bodies there is no room. */
  isLeftOut: ReadonlySet<string>;
};

const byId = <Row extends { id: string }>(rows: readonly Row[]): Map<string, Row> => new Map(rows.map((row) => [row.id, row]));

function known({ run, steps, waiters, messages, log, envelopes, children, kin, cut, payloads }: Fitting, loaded: Loaded): KnownRun {
  const here = new Set(payloads);
  return {
    ...{ waiters, messages, kin, cut, run: { ...run, body: loaded.runs.get(run.id)?.body ?? noBytes } },
    steps: steps.map((step) => ({ ...step, body: loaded.steps.get(step.id)?.body ?? noBytes })),
    log: log.map((row) => loaded.log.get(row.id) ?? (loaded.isLeftOut.has(row.id) ? { ...row, cut: true } : row)),
    envelopes: envelopes.map((envelope) => loaded.envelopes.get(envelope.id) ?? envelope),
    children: children.map((child): Child => {
      const key = toStepId(child.id, initialStepKey);
      return { run: child, payload: here.has(key) ? (loaded.steps.get(key)?.body ?? null) : null };
    }),
  };
}
