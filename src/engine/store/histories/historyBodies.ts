import type { RunNeed } from "../../core/decision/command.ts";
import type { Delivery } from "../../core/model/delivery.ts";
import { historySize } from "../../core/model/run.ts";
import type { SentStep, Step } from "../../core/model/run.ts";
import { toStepId } from "../../core/model/stepId.ts";
import { lazyHistoryBytes } from "../../core/values/limits.ts";
import type { HistoryNeed, Loader } from "../batch/loader.ts";
import { isCreated } from "../batch/overlay.ts";
import type { RecentHistories } from "./recentHistories.ts";
import { SentHistory } from "./sentHistory.ts";
import type { BatchResult } from "../store.ts";
import type { WorkingSet } from "../batch/workingSet.ts";

/**
 * Adds the bodies of the messages of runs to the deliveries of a batch. A body is the history up to and with
 * the step that the message is for, or the response of a third party. If a part of the history is missing,
 * the message must not be sent, because the endpoint would treat the rest as the whole history.
 */
export class HistoryBodies {
  readonly #result: BatchResult;
  readonly #sources: HistorySources;
  /** The runs whose histories are sent, and those whose histories are kept and have grown. */
  readonly #runs = new Map<string, GrownRun>();
  /** The deliveries of responses, and the steps with these responses. */
  readonly #responses: RunDelivery[] = [];
  readonly #responseSteps = new Map<string, Step>();

  constructor(result: BatchResult, sources: HistorySources) {
    this.#result = result;
    this.#sources = sources;
    for (const delivery of result.deliveries) {
      if (!carriesHistory(delivery)) continue;
      if (delivery.message.run.kind === "result") this.#responses.push(delivery);
      else this.#addSent(delivery);
    }
    this.#addCreated();
  }

  /** Loads the steps that are not kept. Must be called in the transaction of the batch. */
  async load(): Promise<void> {
    const { loader } = this.#sources;
    const incomplete = [...this.#runs.values()].filter((run) => countKnown(run) <= run.upTo);
    const [responses, loaded] = await Promise.all([
      this.#responses.length === 0 ? [] : loader.rows("steps", this.#responses.map(toStepRowKey)),
      incomplete.length === 0 ? [] : loader.histories(incomplete.map(toHistoryNeed)),
    ]);
    incomplete.forEach((run, at) => (run.loaded = loaded[at] ?? []));
    for (const step of responses)
      if (!step.damaged) this.#responseSteps.set(`${step.account} ${step.id}`, step);
  }

  /**
   * Keeps the histories, and returns the result of the batch with them. Must be called after the batch is
   * stored.
   */
  finish(): BatchResult {
    for (const run of this.#runs.values()) this.#keep(run);
    const { set, recent } = this.#sources;
    for (const { key, before, now } of set.changes("activeRuns"))
      if (before && before.run !== now?.run) recent.delete({ account: key[0], run: before.run });
    if (this.#runs.size === 0 && this.#responses.length === 0) return this.#result;
    const deliveries = this.#result.deliveries.map((delivery) =>
      carriesHistory(delivery) ? this.#addBody(delivery) : delivery,
    );
    const unsent = deliveries.filter(({ unsendable }) => unsendable !== undefined);
    const faults = [...this.#result.faults, ...unsent.map(formatMissingHistory)];
    return { ...this.#result, deliveries, faults };
  }

  #addSent({ message: { account, run } }: RunDelivery): void {
    const need = { account, run: run.run };
    const known = this.#runs.get(formatRun(need));
    if (known) known.upTo = Math.max(known.upTo, run.position);
    else
      this.#add(need, { history: this.#findKept(need, run.runId) ?? new SentHistory(), upTo: run.position });
  }

  /**
   * Returns the kept history of a run that is certain to be current. A history is only added to, except that
   * a restart of an active run replaces the message of its first step. The active run names this message. On
   * PostgreSQL, another node may have restarted the run, so the history is not used if the batch has not read
   * the active run.
   */
  #findKept(need: RunNeed, runId: string): SentHistory | undefined {
    const { set, loader, recent } = this.#sources;
    const kept = recent.get(need);
    if (kept === undefined) return undefined;
    const key = [need.account, runId] as const;
    // The storage may still have the active run if the batch has ended it.
    const isKnown = set.isKnown("activeRuns", ...key);
    const active = isKnown ? set.peek("activeRuns", ...key) : loader.now?.row("activeRuns", key);
    return active?.run === need.run && active.firstMessage === kept.firstMessage ? kept : undefined;
  }

  /**
   * Adds the steps that the batch has created to the runs that are sent or kept. If a step takes the position
   * of one that is kept, the storage has lost the kept one.
   */
  #addCreated(): void {
    const { set, recent } = this.#sources;
    for (const change of set.changes("steps")) {
      const step = change.now;
      if (step === undefined || !isCreated(change)) continue;
      const kept = recent.get(step);
      const run = this.#runs.get(formatRun(step)) ?? (kept && this.#add(step, { history: kept, upTo: -1 }));
      if (run === undefined) continue;
      if (step.position < run.history.count) run.history = new SentHistory();
      run.created.push(step);
    }
  }

  #add({ account, run }: RunNeed, { history, upTo }: Pick<GrownRun, "history" | "upTo">): GrownRun {
    const grown = { need: { account, run }, history, upTo, loaded: [], created: [] };
    this.#runs.set(formatRun(grown.need), grown);
    return grown;
  }

  #keep({ need, history, upTo, loaded, created }: GrownRun): void {
    const size = created.reduce((sum, { body }) => sum + historySize(body.byteLength), history.byteLength);
    // Nothing is encoded that is not sent.
    if (upTo < 0 && size > lazyHistoryBytes) return this.#sources.recent.delete(need);
    const before = history.memory;
    history.append(loaded);
    history.append(created);
    this.#sources.recent.keep(need, history, history.memory - before);
  }

  #addBody(delivery: RunDelivery): Delivery {
    const { message } = delivery;
    const { account, run } = message;
    if (run.kind === "result") {
      const step = this.#responseSteps.get(toStepRowKey(delivery).join(" "));
      return step ? { ...delivery, message: { ...message, body: step.body } } : withoutHistory(delivery);
    }
    const history = this.#runs.get(formatRun({ account, run: run.run }))?.history.upTo(run.position);
    return history ? { ...delivery, history } : withoutHistory(delivery);
  }
}

/** The changes of the batch, the loader of its transaction, and the kept histories. */
export type HistorySources = {
  set: Pick<WorkingSet, "changes" | "peek" | "isKnown">;
  loader: Pick<Loader, "rows" | "now" | "histories">;
  recent: RecentHistories;
};

/**
 * A run in a batch. `history`: as far as it is kept. `upTo`: the last position that is sent, or -1. `loaded`
 * and `created`: the steps that follow, from the storage and from this batch.
 */
type GrownRun = {
  need: RunNeed;
  history: SentHistory;
  upTo: number;
  loaded: readonly SentStep[];
  created: Step[];
};

/** Returns the number of steps that are known without a gap, before anything is loaded. */
const countKnown = ({ history, created }: GrownRun): number =>
  created.reduce((count, { position }) => (position === count ? count + 1 : count), history.count);

const toHistoryNeed = ({ need, history, upTo }: GrownRun): HistoryNeed => ({
  ...need,
  from: history.count,
  upTo,
});

type RunDelivery = Delivery & { message: { run: NonNullable<Delivery["message"]["run"]> } };

/** If the size is 0, the endpoint fetches the history itself. */
const carriesHistory = (delivery: Delivery): delivery is RunDelivery => {
  const { run } = delivery.message;
  return run !== undefined && run.size > 0 && (run.kind === "step" || run.kind === "result");
};

const toStepRowKey = ({ message: { account, run } }: RunDelivery): [account: string, id: string] => [
  account,
  toStepId(run.run, run.stepKey),
];

const formatRun = ({ account, run }: RunNeed): string => `${account} ${run}`;

const withoutHistory = (delivery: RunDelivery): Delivery => ({
  ...delivery,
  unsendable: "the history of the run is missing or damaged",
});

const formatMissingHistory = ({ message: { account, id }, unsendable }: Delivery): string =>
  `message ${id} of account ${account} is not sent: ${unsendable}`;
