import { nodeEndedDueAt } from "../../src/core/nodes/takeover.ts";
import type { StoredMessage, LogRow, LogState, MessageState, CallbackSubject } from "../../src/core/model/message.ts";
import type { AssertHolds } from "./observedBatch.ts";
import { isLease, isLost } from "./observedBatch.ts";
import type { Tables } from "./changes.ts";

/** What may follow a state in the log of a message. `ACTIVE` after itself: it was given back. */
const followers: Record<LogState, readonly LogState[]> = {
  CREATED: ["ACTIVE", "CANCEL_REQUESTED"],
  ACTIVE: ["DELIVERED", "ERROR", "CANCEL_REQUESTED"],
  ERROR: ["RETRY", "FAILED"],
  RETRY: ["ACTIVE", "CANCEL_REQUESTED"],
  CANCEL_REQUESTED: ["CANCELLED"],
  DELIVERED: [],
  FAILED: [],
  CANCELLED: [],
};

/** The end of its run ends a message that is not being sent; what comes back after it changes nothing. */
const followersInRun: Record<LogState, readonly LogState[]> = {
  ...followers,
  CREATED: ["ACTIVE", "CANCELLED"],
  ACTIVE: ["DELIVERED", "ERROR", "CANCELLED"],
  ERROR: ["RETRY", "FAILED", "CANCELLED"],
  RETRY: ["ACTIVE", "CANCELLED"],
};

const endings: Partial<Record<LogState, "delivered" | "failed" | "cancelled">> = {
  DELIVERED: "delivered",
  FAILED: "failed",
  CANCELLED: "cancelled",
};

/** Everything that happened to one message, and what must have. */
export class MessageHistory {
  readonly message: StoredMessage;
  ended: "delivered" | "failed" | "cancelled" | null = null;
  endedAt = 0;
  /** When its deduplication id was free again: it had failed for good, or somebody cancelled it. */
  freedAt: number | null = null;
  dlqId: string | null = null;
  deadLetters = 0;
  readonly #notBefore: number;
  readonly #assert: AssertHolds;
  readonly #states: LogState[];
  #loggedAt: number;
  #retryAt = 0;
  /** Attempts that ended, and those of them that were lost. */
  #errors = 0;
  #lost = 0;
  #reported = 0;
  #leases = 0;
  #calls = 0;
  #released = 0;
  #callbacks = 0;
  #failureCallbacks: (string | null)[] = [];

  constructor(of: { envelope: StoredMessage; notBefore: number; assertHolds: AssertHolds }) {
    this.message = of.envelope;
    this.#notBefore = of.notBefore;
    this.#assert = of.assertHolds;
    this.#loggedAt = of.envelope.createdAt;
    this.#states = of.envelope.startedAtOnce ? ["CREATED", "ACTIVE"] : ["CREATED"];
  }

  /** Whether a run depends on it; a failure callback only tells of one. */
  get isOfRun(): boolean {
    return this.message.run !== undefined && this.message.run.kind !== "failure";
  }

  log(row: LogRow, now: number): void {
    this.#assertHolds(this.ended === null, `nothing ends twice: ${this.ended}, then ${row.states.join(" ")}`);
    this.#assertHolds(row.time >= this.#loggedAt && row.time <= now, "the log goes forward in time");
    this.#loggedAt = row.time;
    for (const state of row.states) {
      const last = this.#states.at(-1) ?? "CREATED";
      const again = last === "ACTIVE" && state === "ACTIVE" && this.#states.filter((one) => one === "ACTIVE").length < this.#maxLeases();
      this.#assertHolds(
        again || (this.isOfRun ? followersInRun : followers)[last].includes(state),
        `the log is a legal sequence: ${this.#states.join(" ")} then ${state}`,
      );
      this.#states.push(state);
      this.ended = endings[state] ?? this.ended;
      if (state === "FAILED" || state === "CANCEL_REQUESTED") this.freedAt = now;
    }
    if (this.ended) this.endedAt = now;
    if (row.states.includes("RETRY")) this.#errors++;
    this.#retryAt = row.nextDueAt ?? this.#retryAt;
    if (isLost(row)) this.#lost++;
    else if (row.states.includes("ERROR") || row.states.includes("DELIVERED")) this.#reported++;
    if (this.ended === "failed") this.dlqId = row.dlqId;
  }

  state(
    before: MessageState | undefined,
    after: MessageState,
    { now, names, node }: { now: number; names: Set<string>; node: string },
  ): void {
    this.#assertHolds(this.ended === null, "what has ended is not sent");
    const isCancelled = this.#states.at(-1) === "CANCEL_REQUESTED";
    this.#assertHolds((after.state === "cancelling") === isCancelled, `what is cancelled stays so: ${after.state}`);
    this.#assertHolds(
      after.attempts === this.#errors && after.lostAttempts === this.#lost,
      `attempts are counted: ${after.attempts} (${after.lostAttempts} lost), the log says ${this.#errors} (${this.#lost})`,
    );
    const returned = before?.state === "active" && after.state === "pending" && after.attempts === before.attempts;
    if (returned) {
      this.#assertHolds(names.has("returnLeases"), "a lease is given back by who has it");
      this.#released++;
    }
    if (
      before &&
      before.leasedBy !== null &&
      after.leasedBy !== null &&
      before.attempts === after.attempts &&
      before.dueAt !== after.dueAt
    ) {
      const renewed = before.leasedBy === after.leasedBy && names.has("renew") && before.leasedBy === node;
      const takenOver = names.has("takeOver") && after.dueAt === nodeEndedDueAt;
      this.#assertHolds(
        renewed || takenOver || names.has("reclaim"),
        `a lease belongs to one node: ${before.leasedBy} → ${after.leasedBy}`,
      );
    }
    // The same attempt may be lost and leased again, or retried and leased again, within one batch.
    if (!isLease(before, after)) return;
    this.#leases++;
    const free = before === undefined || before.dueAt === null || before.dueAt <= now || names.has("settle");
    this.#assertHolds(free, `nothing is sent before it is due: ${before?.dueAt} at ${now}`);
    this.#assertHolds(this.#notBefore <= now, `nothing is sent before its time: ${this.#notBefore} at ${now}`);
    this.#assertHolds(this.#retryAt <= now, `no retry comes before it was said to: ${this.#retryAt} at ${now}`);
    const logged = isCancelled ? this.#states.at(-2) : this.#states.at(-1);
    this.#assertHolds(logged === "ACTIVE", "who is leased is logged as active");
    this.#assertHolds(this.#leases <= this.#maxLeases(), `attempts stay within their budget: ${this.#leases} leases`);
  }

  call(attempt: number, now: number): void {
    this.#calls++;
    this.#assertHolds(this.#calls <= this.#leases, `every call has a lease: ${this.#calls} calls, ${this.#leases} leases`);
    this.#assertHolds(attempt - this.#lost <= this.message.retries, "attempts stay within their budget");
    this.#assertHolds(this.#notBefore <= now, "nothing is called before its time");
  }

  /** A callback about this message was made. */
  noteReport({ kind, dlqId }: CallbackSubject, { createdAt, notBefore }: StoredMessage): void {
    const delay = this.message[kind]?.delay ?? 0;
    if (!this.message.run) this.#assertHolds(notBefore === createdAt + delay, `a callback has the delay that was asked for: ${delay} ms`);
    if (kind === "callback") this.#callbacks++;
    else this.#failureCallbacks.push(dlqId);
  }

  /** One callback for every attempt that ended with a report, or ended it all; one failure callback for a failure. */
  checkCallbacks({ deadLetters }: Tables): void {
    if (this.isOfRun) return;
    const { callback, failureCallback, account } = this.message;
    const expected = callback ? this.#reported : 0;
    this.#assertHolds(this.#callbacks === expected, `one callback for every attempt: ${this.#callbacks} of ${expected}`);
    const failures = failureCallback && this.ended === "failed" ? [this.dlqId] : [];
    this.#assertHolds(
      JSON.stringify(this.#failureCallbacks) === JSON.stringify(failures),
      `one failure callback: ${this.#failureCallbacks.join(" ")} instead of ${failures.join(" ")}`,
    );
    const { reportsOn } = this.message;
    if (reportsOn?.kind !== "failureCallback" || !this.ended) return;
    const told = deadLetters.get(`${account}\n${reportsOn.dlqId}`);
    const state = { delivered: "CALLBACK_SUCCESS", failed: "CALLBACK_FAIL", cancelled: "CALLBACK_CANCELED" }[this.ended];
    this.#assertHolds(
      !told || told.failureCallback?.state === state,
      `the dead letter knows of its failure callback: ${told?.failureCallback?.state} instead of ${state}`,
    );
  }

  /** When all is quiet. */
  checkEnd(): void {
    this.#assertHolds(this.ended !== null, `every message ends: ${this.#states.join(" ")}`);
    const kind = this.message.run?.kind;
    const isDead = this.ended === "failed" && kind !== "call" && kind !== "failure";
    this.#assertHolds((isDead ? 1 : 0) === this.deadLetters, "who fails is in the dead letter queue once");
    this.#assertHolds(this.ended !== "delivered" || this.#calls > 0, "nothing is delivered without a call");
  }

  #maxLeases(): number {
    return 1 + this.#errors + this.#released;
  }

  #assertHolds(holds: boolean, promise: string): void {
    if (!holds) this.#assert(false, `${promise} (${this.message.id})`);
  }
}
