import type { Job } from "../../../../src/operations/jobs/job.ts";
import type { Tables } from "../../../simulation/storage/changes.ts";
import type { Effect } from "./jobEffects.ts";
import type { Seen } from "./jobEntries.ts";
import { listEntries } from "./jobEntries.ts";

/** The rows that exist, and those that have existed. */
export type Facts = { tables: Tables; seen: Seen };

/** The effects of one job, according to the rows that it changed. */
export class JobRecord {
  job: Job;
  /** The effects of its portions, by entry, in their order. */
  readonly handled = new Map<string, Effect>();
  /** The entries that one attempt could not handle, for a reason that was checked. */
  readonly refused = new Set<string>();
  /** The messages of the refusals that concern more than one entry. */
  readonly obstacles = new Set<string>();
  isStopped = false;
  /** When the first portion was handled, and by how many nodes in turn. */
  #begunAt: number | null = null;
  #lastNode: string | null = null;
  #turns = 0;
  /** The entries that matched when the job was requested. It must handle those that still exist. */
  readonly #members: ReadonlySet<string>;

  constructor(job: Job, members: ReadonlySet<string>) {
    this.job = job;
    this.#members = members;
  }

  get name(): string {
    return `${this.job.id} (${this.job.action})`;
  }

  /**
   * Notes a portion, and reports whether the job keeps its rate. A node that takes over, or whose clock has
   * changed, may be early by one portion. `changes` is the number of such changes.
   */
  keepsRate(added: number, { node, now, changes }: { node: string; now: number; changes: number }): boolean {
    this.#begunAt ??= now;
    if (node !== this.#lastNode) this.#turns++;
    this.#lastNode = node;
    const rate = this.job.rate ?? Infinity;
    return this.handled.size + added <= rate * ((now - this.#begunAt) / 1_000 + this.#turns + changes);
  }

  /** Returns the members that exist and that the job has not handled. */
  listLeft(facts: Facts): string[] {
    const existing = listEntries(this.job, this.job.account, facts);
    return [...this.#members].filter((id) => existing.has(id) && !this.handled.has(id));
  }

  /** Returns the effects on the first entries, which must succeed before the others are handled. */
  listCanary(): Effect[] {
    return [...this.handled.values()].slice(0, this.job.canary ?? 0);
  }

  /** Reports whether each entry of the canary has ended well. */
  hasCanarySucceeded(facts: Facts): boolean {
    return this.listCanary().every((effect) => this.#judge(effect, facts) === "succeeded");
  }

  /** Reports whether an entry of the canary has ended badly, or can no longer be judged by the job. */
  hasCanaryFailed(facts: Facts): boolean {
    return this.listCanary().some(
      (effect) => this.#judge(effect, facts) !== "pending" && !this.#isKnownWell(effect, facts),
    );
  }

  #isKnownWell(effect: Effect, facts: Facts): boolean {
    const isThere =
      facts.tables.storedMessages.has(`${this.job.account}\n${effect.became}`) ||
      facts.tables.runs.has(`${this.job.account}\n${effect.became}`);
    return this.#judge(effect, facts) === "succeeded" && isThere;
  }

  #judge({ outcome, became }: Effect, { seen }: Facts): "succeeded" | "failed" | "pending" {
    if (outcome === "failed" || became === null) return "failed";
    const { histories, runs } = seen;
    const isMessage = this.job.action === "dlq.retry";
    const history = isMessage ? histories.get(became) : undefined;
    // A message that is cancelled during its request is never delivered, whatever the request comes to.
    if (history?.isCancelled) return "failed";
    const state = (isMessage ? history?.ended : runs.get(became)?.state) ?? null;
    if (state === null || state === "RUN_STARTED") return "pending";
    return state === "delivered" || state === "RUN_SUCCESS" ? "succeeded" : "failed";
  }
}
