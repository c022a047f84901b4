import type { Delivery } from "../../../src/engine/core/model/delivery.ts";
import type { LeaseRef } from "../../../src/engine/core/model/messageState.ts";
import { nodeEndedDueAt } from "../../../src/engine/core/cluster/takeover.ts";
import type { ObservedBatch, AssertHolds } from "./observedBatch.ts";
import type { Tables } from "../storage/changes.ts";

type RequestCheckContext = { assertHolds: AssertHolds; tables: Tables; cover: (what: string) => void };

/**
 * Checks running requests from the destinations' point of view. Each holds its place at its key and its queue
 * until it has ended, so their number stays within the limits that `LimiterChecker` checks. Only a lost lease
 * ends before its request.
 */
export class RequestChecker {
  /** Running requests with the nodes that send them. */
  readonly #inFlight = new Map<Delivery, string>();

  begin(node: string, delivery: Delivery): void {
    this.#inFlight.set(delivery, node);
  }

  end(delivery: Delivery): void {
    this.#inFlight.delete(delivery);
  }

  /** Ends the requests of a process that died. */
  died(node: string): void {
    for (const [delivery, sender] of this.#inFlight) if (sender === node) this.#inFlight.delete(delivery);
  }

  check(observed: ObservedBatch, { assertHolds, tables, cover }: RequestCheckContext): void {
    this.#checkTakenOver(observed, { assertHolds, cover });
    const lost = new Set(
      observed.changes.log.flatMap(({ after }) =>
        after?.error?.startsWith("no report: ") ? after.messageId : [],
      ),
    );
    if (observed.calls.some(({ name }) => name === "claim"))
      for (const { before, after } of observed.changes.messages)
        if (before?.state === "settled" && !after) lost.add(before.id);
    for (const [delivery] of this.#inFlight)
      if (lost.has(delivery.message.id)) this.#inFlight.delete(delivery);
    const counts = new Map<string, number>();
    for (const { message } of this.#inFlight.keys()) {
      const { account, id, queue, flowControl } = message;
      assertHolds(
        queue === null || tables.queueSlots.has(`${account}\n${id}`),
        `a request keeps its queue slot until it has ended: ${id}`,
      );
      if (flowControl)
        counts.set(
          `${account}\nkey:${flowControl.key}`,
          (counts.get(`${account}\nkey:${flowControl.key}`) ?? 0) + 1,
        );
      const state = tables.messages.get(`${account}\n${id}`)?.state;
      const isCancelled = state === "cancelling";
      if (state === "settled" && flowControl) cover("settled by a step, with a place under a key");
      if (isCancelled && queue !== null) cover("cancelled while it is sent, with a place in a queue");
      if (isCancelled && flowControl) cover("cancelled while it is sent, with a place under a key");
    }
    for (const [name, count] of counts) {
      const { running = 0 } = tables.limiters.get(name) ?? {};
      assertHolds(
        count <= running,
        `a request keeps its place under the key until it has ended: ${count} of ${running} of ${name}`,
      );
    }
    checkAborts(observed, { assertHolds, tables });
  }

  /** Checks that a lease ends early only if its node has died, or has ended what it was sending. */
  #checkTakenOver(
    { changes }: ObservedBatch,
    { assertHolds, cover }: Pick<RequestCheckContext, "assertHolds" | "cover">,
  ): void {
    for (const { before, after } of changes.messages) {
      if (after?.dueAt !== nodeEndedDueAt || before?.dueAt === nodeEndedDueAt) continue;
      cover("taken over");
      const sending = [...this.#inFlight].find(([{ message }]) => message.id === after.id);
      assertHolds(
        sending === undefined,
        `a message that is taken over is not being sent: ${after.id} by ${sending?.[1]}`,
      );
    }
  }
}

/** Checks that a renewing node learns which of its requests to abort. */
function checkAborts(
  { node, calls, result }: ObservedBatch,
  { assertHolds, tables }: Pick<RequestCheckContext, "assertHolds" | "tables">,
): void {
  for (const { name, input } of calls) {
    if (name !== "renew") continue;
    for (const { account, messageId, attempt } of (input as { leases: LeaseRef[] }).leases) {
      const state = tables.messages.get(`${account}\n${messageId}`);
      const isUnwanted = state?.state === "cancelling" || state?.state === "ending";
      const isWanted = !isUnwanted || state.leasedBy !== node || state.attempts !== attempt;
      assertHolds(
        isWanted || result.abortedLeases.some((held) => held.messageId === messageId),
        `the request of a cancelled message or an ended attempt is aborted: ${messageId}`,
      );
    }
  }
}
