import type { Delivery, Held } from "../../src/core/model/message.ts";
import { endedWithNode } from "../../src/core/nodes/takeover.ts";
import type { Case, Demand } from "./batch.ts";
import type { Tables } from "./changes.ts";

type Court = { demand: Demand; tables: Tables; happens: (what: string) => void };

/**
 * Requests under way, as their destinations see them. Each has a place under its key, and in its queue, until it has ended:
 * so there are never more than the places that `Flows` sees to be within the limits. Only a lease that was lost ends before
 * its request does.
 */
export class Requests {
  /** With the node that sends it. */
  readonly #underWay = new Map<Delivery, string>();

  begin(node: string, delivery: Delivery): void {
    this.#underWay.set(delivery, node);
  }

  end(delivery: Delivery): void {
    this.#underWay.delete(delivery);
  }

  /** The connections of a process end with it. */
  died(node: string): void {
    for (const [delivery, sender] of this.#underWay) if (sender === node) this.#underWay.delete(delivery);
  }

  judge(of: Case, { demand, tables, happens }: Court): void {
    this.#checkTakenOver(of, { demand, happens });
    const lost = new Set(of.changes.log.flatMap(({ after }) => (after?.error?.startsWith("no report: ") ? after.messageId : [])));
    for (const [delivery] of this.#underWay) if (lost.has(delivery.message.id)) this.#underWay.delete(delivery);
    const counts = new Map<string, number>();
    for (const { message } of this.#underWay.keys()) {
      const { account, id, queue, flowControl } = message;
      demand(queue === null || tables.slots.has(`${account}\n${id}`), `a request keeps its place in the queue until it has ended: ${id}`);
      if (flowControl) counts.set(`${account}\nkey:${flowControl.key}`, (counts.get(`${account}\nkey:${flowControl.key}`) ?? 0) + 1);
      const isCancelled = tables.messages.get(`${account}\n${id}`)?.state === "cancelling";
      if (isCancelled && queue !== null) happens("cancelled while it is sent, with a place in a queue");
      if (isCancelled && flowControl) happens("cancelled while it is sent, with a place under a key");
    }
    for (const [name, count] of counts) {
      const { running = 0 } = tables.flows.get(name) ?? {};
      demand(count <= running, `a request keeps its place under the key until it has ended: ${count} of ${running} of ${name}`);
    }
    checkCallingOff(of, { demand, tables });
  }

  /** Leases end early only when their node is gone, or has ended what it was sending. */
  #checkTakenOver({ changes }: Case, { demand, happens }: Pick<Court, "demand" | "happens">): void {
    for (const { before, after } of changes.messages) {
      if (after?.dueAt !== endedWithNode || before?.dueAt === endedWithNode) continue;
      happens("taken over");
      const sending = [...this.#underWay].find(([{ message }]) => message.id === after.id);
      demand(sending === undefined, `what is taken over is being sent by nobody: ${after.id} by ${sending?.[1]}`);
    }
  }
}

/** A node that says what it still sends hears what of it is not wanted any more. */
function checkCallingOff({ node, calls, result }: Case, { demand, tables }: Pick<Court, "demand" | "tables">): void {
  for (const { name, input } of calls) {
    if (name !== "renew") continue;
    for (const { account, messageId, attempt } of (input as { held: Held[] }).held) {
      const state = tables.messages.get(`${account}\n${messageId}`);
      const isWanted = state?.state !== "cancelling" || state.leasedBy !== node || state.attempts !== attempt;
      demand(isWanted || result.calledOff.some((held) => held.messageId === messageId), `what is cancelled is called off: ${messageId}`);
    }
  }
}
