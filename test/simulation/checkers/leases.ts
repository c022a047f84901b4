import type { LogRow } from "../../../src/engine/core/model/logRow.ts";
import type { CommandCall } from "../../../src/engine/store/store.ts";
import type { Tables } from "../storage/changes.ts";
import type { ObservedBatch, AssertHolds } from "./observedBatch.ts";
import { endsReportedAttempt, isLease } from "./observedBatch.ts";

type LeaseCheckContext = {
  assertHolds: AssertHolds;
  tables: Tables;
  now: number;
  /** The maximum number of bytes that a batch may load for waiting messages. */
  bytesPerBatch: number;
};

/** Checks leases, deliveries and outcomes. */
export class LeaseChecker {
  /** When signing keys were replaced. */
  readonly #replaced = new Map<string, number>();

  check(observed: ObservedBatch, context: LeaseCheckContext): void {
    this.#checkReports(observed, context);
    this.#checkDeliveries(observed, context);
  }

  /** Checks that an outcome counts once, and only if its node has the lease of this attempt. */
  #checkReports({ node, calls, result, changes }: ObservedBatch, { assertHolds }: LeaseCheckContext): void {
    const before = new Map(changes.messages.map(({ before }) => [before?.id, before]));
    const counted = new Map<string, number>();
    const settledBefore = new Set<string>();
    calls.forEach(({ name, input }, index) => {
      const reply = result.replies[index];
      assertHolds(
        reply !== undefined && !("failed" in reply),
        `no command fails: ${name} ${JSON.stringify(reply)}`,
      );
      if (name !== "settle" || !reply || !("answer" in reply)) return;
      const { messageId, attempt } = input as { messageId: string; attempt: number };
      if ((reply.answer as { became: string }).became === "late") return;
      const state = before.get(messageId);
      const holds = state?.leasedBy === node && state.attempts === attempt;
      assertHolds(holds, `only the lease holder can settle: ${messageId} #${attempt} of ${node}`);
      if ((reply.answer as { became: string }).became === "acknowledging") return;
      counted.set(messageId, (counted.get(messageId) ?? 0) + 1);
      // A step has settled it in an earlier batch, which logged its end.
      if (state?.state === "settled") settledBefore.add(messageId);
    });
    const added = changes.log.flatMap(({ before, after }) => (after && !before ? [after] : []));
    const retried = new Set(
      added.filter(({ states }) => states.includes("RETRY")).map(({ messageId }) => messageId),
    );
    // A retried message may be dropped with its run in the same batch. That ends no attempt.
    const isDropped = ({ states: [first], messageId }: LogRow): boolean =>
      first === "CANCELLED" && retried.has(messageId);
    const rows = added.flatMap((row) => (endsReportedAttempt(row) && !isDropped(row) ? [row.messageId] : []));
    for (const [id, reports] of counted) {
      assertHolds(
        reports === 1 && rows.filter((row) => row === id).length === (settledBefore.has(id) ? 0 : 1),
        `an outcome is counted once: ${id}`,
      );
    }
  }

  /** Checks that leased messages are delivered by the node that leased them, and no others. */
  #checkDeliveries(observed: ObservedBatch, context: LeaseCheckContext): void {
    const { assertHolds, tables, now } = context;
    const { node, result, changes } = observed;
    this.#checkBytes(observed, context);
    for (const { message } of result.deliveries) {
      const { size } = tables.messages.get(`${message.account}\n${message.id}`) ?? {};
      const length = message.body.byteLength;
      const fits = message.run?.kind === "step" ? length <= (size ?? 0) : length === size;
      assertHolds(fits, `the size is that of the whole body: ${message.id}, ${size}`);
    }
    for (const what of result.faults) assertHolds(false, what);
    for (const { before } of changes.accounts)
      for (const key of Object.values(before?.signingKeys ?? {})) this.#replaced.set(key, now);
    const leased = changes.messages.flatMap(({ before, after }) =>
      isLease(before, after) && after ? [after] : [],
    );
    for (const state of leased) {
      const delivered = result.deliveries.filter(
        ({ message, attempt }) => message.id === state.id && attempt === state.attempts,
      );
      assertHolds(state.leasedBy === node, `a node leases for itself: ${state.id}`);
      assertHolds(delivered.length === 1, `a leased message is sent once: ${state.id}`);
      const keys = tables.accounts.get(state.account)?.signingKeys;
      // A concurrent batch may have read the keys before they were changed.
      assertHolds(
        delivered.every(
          ({ signingKey }) => signingKey === keys?.current || this.#replaced.get(signingKey ?? "") === now,
        ),
        `a message is signed with its account's key: ${state.id}`,
      );
    }
    for (const { message } of result.deliveries) {
      const isLeased = leased.some(({ account, id }) => account === message.account && id === message.id);
      assertHolds(isLeased, `a sent message is leased: ${message.id}`);
    }
  }

  /** Checks that the bodies loaded for waiting messages stay within the limit of a batch. */
  #checkBytes(
    { calls, result, changes }: ObservedBatch,
    { assertHolds, bytesPerBatch }: LeaseCheckContext,
  ): void {
    const othersThanWaiting = new Set([
      ...changes.messages.flatMap(({ before, after }) => (before ? [] : (after?.id ?? []))),
      // The stored message of a settled attempt is loaded for its callback.
      ...calls.flatMap(({ name, input }) =>
        name === "settle" ? (input as { messageId: string }).messageId : [],
      ),
    ]);
    const sizes = result.deliveries.flatMap(({ message }) =>
      othersThanWaiting.has(message.id) ? [] : message.body.byteLength,
    );
    const bytes = sizes.reduce((sum, size) => sum + size, 0);
    // The first body may be larger than the limit.
    const isBounded = bytes - Math.max(0, ...sizes) <= bytesPerBatch;
    assertHolds(isBounded, `a batch loads at most its limit: ${bytes} bytes in ${sizes.length} messages`);
  }
}

/** Returns the names of the commands in a batch that may change a message. */
export function listCommandsAbout({ calls }: ObservedBatch, id: string): Set<string> {
  const about = ({ name, input }: CommandCall): boolean => {
    if (name === "returnLeases" || name === "renew")
      return (input as { leases: { messageId: string }[] }).leases.some(({ messageId }) => messageId === id);
    return name !== "settle" || (input as { messageId: string }).messageId === id;
  };
  return new Set(calls.filter(about).map(({ name }) => name));
}
