import { Refusal } from "../core/values/errors.ts";
import { spans } from "../core/values/limits.ts";
import type { ReturnedLease } from "../core/model/messageState.ts";
import type { Store } from "../store/store.ts";
import type { Clock } from "../clock/clock.ts";
import { notRunning, type Running, type RunningDeliveries, toLeaseRef } from "./runningDeliveries.ts";

type LeaseRenewalOptions = {
  store: Store;
  clock: Clock;
  log: { failure(message: string, error: unknown): void };
  running: RunningDeliveries;
};

/** Renews the leases of running deliveries, so that they do not expire. */
export class LeaseRenewal {
  readonly #options: LeaseRenewalOptions;
  #isRenewing = false;

  constructor(options: LeaseRenewalOptions) {
    this.#options = options;
  }

  /** Starts renewing unless it has started already. */
  start(): void {
    if (!this.#isRenewing) void this.#renew();
  }

  /**
   * Renews the leases of long deliveries every quarter of a lease (7.5 s). It ends when nothing is running.
   */
  async #renew(): Promise<void> {
    const { clock } = this.#options;
    // A quarter, so that two renewals may fail before a lease expires.
    const period = spans.lease / 4;
    this.#isRenewing = true;
    while (this.#options.running.count > 0) {
      const runningBefore = this.#options.running.list();
      await clock.sleep(clock.now() + period, new AbortController().signal);
      const stillRunning = runningBefore.filter(({ index, isSettled }) => index !== notRunning && !isSettled);
      if (stillRunning.length > 0) await this.#renewAll(stillRunning);
    }
    this.#isRenewing = false;
  }

  /**
   * Renews leases of which three quarters have passed. This happens if the clock was set forward or the
   * process was suspended. Without the renewal, the next claim would treat these leases as lost.
   */
  async renewOverdue(): Promise<void> {
    const before = this.#options.clock.now() - (3 * spans.lease) / 4;
    const overdue = this.#options.running.list().filter((one) => !one.isSettled && one.leasedAt < before);
    if (overdue.length > 0) await this.#renewAll(overdue);
  }

  /** Renews all leases now, which aborts the deliveries that another node has ended. */
  async renewNow(): Promise<void> {
    const running = this.#options.running.list().filter(({ isSettled }) => !isSettled);
    if (running.length > 0) await this.#renewAll(running);
  }

  async #renewAll(deliveries: readonly Running[]): Promise<void> {
    const now = this.#options.clock.now();
    for (const running of deliveries) running.leasedAt = now;
    const leases = deliveries.map(({ delivery }) => toLeaseRef(delivery));
    await this.update("renew", leases, "could not renew leases; trying again");
  }

  /**
   * Runs a command on all leases at once. If that fails, tries it on each half, so that one bad row does not
   * cost the others their leases.
   */
  async update(
    command: "renew" | "returnLeases",
    leases: readonly ReturnedLease[],
    failureText: string,
  ): Promise<void> {
    const { store, log } = this.#options;
    try {
      await store.execute(command, { leases });
    } catch (error) {
      if (leases.length === 1 || error instanceof Refusal) return log.failure(failureText, error);
      const middle = Math.ceil(leases.length / 2);
      await this.update(command, leases.slice(0, middle), failureText);
      await this.update(command, leases.slice(middle), failureText);
    }
  }
}
