import { nodeEndedDueAt } from "../../../src/engine/core/cluster/takeover.ts";
import type { StoredMessage, CallbackSubject } from "../../../src/engine/core/model/message.ts";
import type { LogRow, LogState } from "../../../src/engine/core/model/logRow.ts";
import type { MessageState } from "../../../src/engine/core/model/messageState.ts";
import type { RunProgress } from "../../../src/engine/core/model/run.ts";
import { isSettledByStep } from "../../../src/engine/core/sending/recordOutcome.ts";
import { reusedRunIds } from "../actors/runClients.ts";
import type { AssertHolds } from "./observedBatch.ts";
import { isEndedByOperator, isNotPulled, isLease, isLost } from "./observedBatch.ts";
import type { Tables } from "../storage/changes.ts";

/**
 * The states that may follow a state in the log of a message. `ACTIVE` after itself: its lease was returned.
 */
const followers: Record<LogState, readonly LogState[]> = {
  CREATED: ["ACTIVE", "CANCEL_REQUESTED"],
  ACTIVE: ["DELIVERED", "ERROR", "ACKNOWLEDGING", "CANCEL_REQUESTED"],
  ACKNOWLEDGING: ["DELIVERED", "ERROR", "CANCEL_REQUESTED"],
  ERROR: ["RETRY", "FAILED"],
  RETRY: ["ACTIVE", "CANCEL_REQUESTED"],
  CANCEL_REQUESTED: ["CANCELLED"],
  DELIVERED: [],
  FAILED: [],
  CANCELLED: [],
};

/**
 * The end of its run ends a message that is not in flight. Later outcomes change nothing. A step that was
 * posted in an earlier attempt delivers a message that waits for its retry.
 */
const followersInRun: Record<LogState, readonly LogState[]> = {
  ...followers,
  CREATED: ["ACTIVE", "CANCELLED"],
  ACTIVE: ["DELIVERED", "ERROR", "ACKNOWLEDGING", "CANCELLED"],
  ACKNOWLEDGING: ["DELIVERED", "ERROR", "CANCELLED"],
  ERROR: ["RETRY", "FAILED", "CANCELLED"],
  RETRY: ["ACTIVE", "CANCELLED", "DELIVERED"],
};

const endings: Partial<Record<LogState, "delivered" | "failed" | "cancelled">> = {
  DELIVERED: "delivered",
  FAILED: "failed",
  CANCELLED: "cancelled",
};

/** Everything that happened to one message, and what must have happened. */
export class MessageHistory {
  readonly message: StoredMessage;
  ended: "delivered" | "failed" | "cancelled" | null = null;
  endedAt = 0;
  /** When its deduplication id became free: the message failed or was cancelled. */
  freedAt: number | null = null;
  dlqId: string | null = null;
  deadLetters = 0;
  #notBefore: number;
  readonly #assert: AssertHolds;
  readonly #states: LogState[];
  #loggedAt: number;
  #retryAt = 0;
  #sentNowAt: number | null = null;
  /** Attempts that ended, and how many of them were lost, or ended by an operator. */
  #errors = 0;
  #lost = 0;
  #ended = 0;
  /** Attempts that no puller received. They count as ended attempts. */
  #notPulled = 0;
  /** The attempts that an operator has named to end them. */
  readonly #named = new Set<number>();
  #reported = 0;
  #leases = 0;
  #calls = 0;
  /** The retries and the lost attempts until a step ran on. Each such step has its own. */
  #progressed = { retried: 0, lost: 0 };
  #isSettledByStep = false;
  #released = 0;
  #callbacks = 0;
  #failureCallbacks: (string | null)[] = [];

  constructor(of: { message: StoredMessage; notBefore: number; assertHolds: AssertHolds }) {
    this.message = of.message;
    this.#notBefore = of.notBefore;
    this.#assert = of.assertHolds;
    this.#loggedAt = of.message.createdAt;
    this.#states = of.message.startedAtOnce ? ["CREATED", "ACTIVE"] : ["CREATED"];
  }

  /** Reports whether a run depends on the message. A failure callback only reports on a run. */
  get isOfRun(): boolean {
    return this.message.run !== undefined && this.message.run.kind !== "failure";
  }

  /** Reports whether it was cancelled. The request of a cancelled message may still run. */
  get isCancelled(): boolean {
    return this.#states.includes("CANCEL_REQUESTED") || this.ended === "cancelled";
  }

  log(row: LogRow, now: number): void {
    this.#assertHolds(
      this.ended === null,
      `a message ends once: ${this.ended}, then ${row.states.join(" ")}`,
    );
    this.#assertHolds(row.time >= this.#loggedAt && row.time <= now, "log times increase");
    this.#loggedAt = row.time;
    for (const state of row.states) {
      const last = this.#states.at(-1) ?? "CREATED";
      const again =
        last === "ACTIVE" &&
        state === "ACTIVE" &&
        this.#states.filter((one) => one === "ACTIVE").length < this.#maxLeases();
      this.#assertHolds(
        again || (this.isOfRun ? followersInRun : followers)[last].includes(state),
        `log states follow each other: ${this.#states.join(" ")} then ${state}`,
      );
      this.#states.push(state);
      this.ended = endings[state] ?? this.ended;
      if (state === "FAILED" || state === "CANCEL_REQUESTED") this.freedAt = now;
    }
    if (this.ended) this.endedAt = now;
    if (isSettledByStep(row)) this.#isSettledByStep = true;
    if (row.states.includes("RETRY")) this.#errors++;
    this.#retryAt = row.nextDueAt ?? this.#retryAt;
    if (isEndedByOperator(row)) this.#ended++;
    else if (isNotPulled(row)) this.#notPulled++;
    else if (isLost(row)) this.#lost++;
    else if (row.states.includes("ERROR") || row.states.includes("DELIVERED")) this.#reported++;
    if (this.ended === "failed") this.dlqId = row.dlqId;
  }

  /** Called when a client sends the message before its delay or its next retry. */
  sendNow(now: number): void {
    this.#notBefore = Math.min(this.#notBefore, now);
    this.#retryAt = Math.min(this.#retryAt, now);
    this.#sentNowAt = now;
  }

  /** Called when an operator names an attempt to end it. */
  endAttempt(attempt: number): void {
    this.#named.add(attempt);
  }

  state(
    before: MessageState | undefined,
    after: MessageState,
    { now, names, node }: { now: number; names: Set<string>; node: string },
  ): void {
    const isSettled = after.state === "settled" && this.ended === "delivered";
    this.#assertHolds(this.ended === null || isSettled, "an ended message is not sent");
    const isCancelled = this.#states.at(-1) === "CANCEL_REQUESTED";
    this.#assertHolds(
      (after.state === "cancelling") === isCancelled,
      `a cancelled message stays cancelled: ${after.state}`,
    );
    this.#assertHolds(
      after.attempts === this.#errors &&
        after.lostAttempts === this.#lost &&
        (after.endedAttempts ?? 0) === this.#ended + this.#notPulled,
      `attempts are counted: ${after.attempts} (${after.lostAttempts} lost, ${after.endedAttempts} ended), ` +
        `the log has ${this.#errors} (${this.#lost}, ${this.#ended}, ${this.#notPulled})`,
    );
    this.#assertHolds(this.#ended <= this.#named.size, "only an attempt that an operator names is ended");
    const returned =
      before?.state === "active" && after.state === "pending" && after.attempts === before.attempts;
    if (returned) {
      this.#assertHolds(names.has("returnLeases"), "only the lease holder returns a lease");
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
      const isHeld = after.state === "acknowledging" && (names.has("settle") || names.has("extendAttempt"));
      const takenOver = names.has("takeOver") && after.dueAt === nodeEndedDueAt;
      this.#assertHolds(
        renewed || isHeld || takenOver || names.has("reclaim"),
        `a lease belongs to one node: ${before.leasedBy} → ${after.leasedBy}`,
      );
    }
    // Within one batch, an attempt may be lost or retried, and then leased again.
    if (!isLease(before, after)) return;
    this.#leases++;
    const free =
      before === undefined ||
      before.dueAt === null ||
      before.dueAt <= now ||
      this.#sentNowAt === now ||
      ["settle", "reportAttempt", "endAttempts"].some((name) => names.has(name));
    this.#assertHolds(free, `a message is not sent before it is due: ${before?.dueAt} at ${now}`);
    this.#assertHolds(
      this.#notBefore <= now,
      `a message is not sent before its delay ends: ${this.#notBefore} at ${now}`,
    );
    this.#assertHolds(
      this.#retryAt <= now,
      `a retry is not sent before its delay ends: ${this.#retryAt} at ${now}`,
    );
    const logged = isCancelled ? this.#states.at(-2) : this.#states.at(-1);
    this.#assertHolds(logged === "ACTIVE", "a leased message is logged as active");
    this.#assertHolds(
      this.#leases <= this.#maxLeases(),
      `attempts do not exceed the retries: ${this.#leases} leases`,
    );
  }

  /** Notes progress of its run, if there is any. Returns the retries and the lost attempts until then. */
  noteProgress(progress: RunProgress | undefined): { retried: number; lost: number } {
    if (progress) this.#progressed = progress;
    return this.#progressed;
  }

  call(attempt: number, now: number): void {
    this.#calls++;
    this.#assertHolds(
      this.#calls <= this.#leases,
      `every call has a lease: ${this.#calls} calls, ${this.#leases} leases`,
    );
    this.#assertHolds(
      attempt - this.#lost - this.#ended - this.#notPulled <= this.message.retries + this.#progressed.retried,
      "attempts do not exceed the retries",
    );
    this.#assertHolds(this.#notBefore <= now, "no call is made before the delay ends");
  }

  /** Called when a callback about this message is created. */
  noteReport({ kind, dlqId }: CallbackSubject, { createdAt, notBefore }: StoredMessage): void {
    const delay = this.message[kind]?.delay ?? 0;
    if (!this.message.run)
      this.#assertHolds(notBefore === createdAt + delay, `a callback has its requested delay: ${delay} ms`);
    if (kind === "callback") this.#callbacks++;
    else this.#failureCallbacks.push(dlqId);
  }

  /**
   * Checks callbacks: one for every attempt that was reported or that ended the message, and one failure
   * callback for a failure.
   */
  checkCallbacks({ deadLetters }: Tables): void {
    if (this.isOfRun) return;
    const { callback, failureCallback, account } = this.message;
    const expected = callback ? this.#reported : 0;
    this.#assertHolds(
      this.#callbacks === expected,
      `one callback for every attempt: ${this.#callbacks} of ${expected}`,
    );
    const failures = failureCallback && this.ended === "failed" ? [this.dlqId] : [];
    this.#assertHolds(
      JSON.stringify(this.#failureCallbacks) === JSON.stringify(failures),
      `one failure callback: ${this.#failureCallbacks.join(" ")} instead of ${failures.join(" ")}`,
    );
    const { reportsOn } = this.message;
    if (reportsOn?.kind !== "failureCallback" || !this.ended) return;
    const told = deadLetters.get(`${account}\n${reportsOn.dlqId}`);
    const state = { delivered: "CALLBACK_SUCCESS", failed: "CALLBACK_FAIL", cancelled: "CALLBACK_CANCELED" }[
      this.ended
    ];
    this.#assertHolds(
      !told || told.failureCallback?.state === state,
      `the dead letter records its failure callback: ${told?.failureCallback?.state} instead of ${state}`,
    );
  }

  /** Checks the end of the message, when everything has ended. */
  checkEnd(): void {
    this.#assertHolds(this.ended !== null, `every message ends: ${this.#states.join(" ")}`);
    const kind = this.message.run?.kind;
    const isDead = this.ended === "failed" && kind !== "call" && kind !== "failure";
    this.#assertHolds((isDead ? 1 : 0) === this.deadLetters, "a failed message has one dead letter");
    // A late post of an earlier run may reach a run with the same id before its first call.
    const isPostedAstray = this.#isSettledByStep && reusedRunIds.includes(this.message.run?.runId ?? "");
    this.#assertHolds(
      this.ended !== "delivered" || this.#calls > 0 || isPostedAstray,
      "a delivered message was called",
    );
  }

  #maxLeases(): number {
    return 1 + this.#errors + this.#released;
  }

  #assertHolds(holds: boolean, promise: string): void {
    if (!holds) this.#assert(false, `${promise} (${this.message.id})`);
  }
}
