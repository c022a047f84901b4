import type { Delivery } from "../../../src/engine/core/model/delivery.ts";
import type { NodeCapacity } from "../cluster.ts";
import { findBrokenShare } from "./capacityShares.ts";
import type { BytesInUse, InUse } from "./capacityShares.ts";

type Call = { node: string; lane: string; account: string; size: number; order: number };

/** The deliveries that were committed, in order, and the calls of all nodes that run. */
export class RunningCalls {
  readonly #capacity: NodeCapacity;
  readonly #running = new Map<Delivery, Call>();
  /** The place of each delivery that was committed and did not begin yet. */
  readonly #order = new Map<string, number>();
  #committed = 0;

  constructor(capacity: NodeCapacity) {
    this.#capacity = capacity;
  }

  /** Notes the deliveries that a batch gave capacity, in the order in which they got it. */
  taken(deliveries: readonly Delivery[]): void {
    for (const delivery of deliveries) this.#order.set(nameOf(delivery), this.#committed++);
  }

  /**
   * Adds a call, and returns what was in use before, and the rule of capacity that it breaks. A call may wait
   * for another to end after it got its capacity. So it is compared only with calls that had theirs before.
   */
  begin(
    delivery: Delivery,
    { node, lane }: Pick<Call, "node" | "lane">,
  ): { inUse: { calls: InUse; bytes: BytesInUse }; broken: string | null } {
    const { account } = delivery.message;
    const size = (delivery.history ?? delivery.message.body).byteLength;
    const order = this.#order.get(nameOf(delivery)) ?? this.#committed;
    const before = [...this.#running.values()].filter((call) => call.node === node && call.order < order);
    const sum = (measure: (call: Call) => number): InUse => ({
      onNode: add(before, measure),
      toHost: add(
        before.filter((call) => call.lane === lane),
        measure,
      ),
      ofAccount: add(
        before.filter((call) => call.account === account),
        measure,
      ),
    });
    const inUse = { calls: sum(() => 1), bytes: { ...sum((call) => call.size), size } };
    this.#order.delete(nameOf(delivery));
    this.#running.set(delivery, { node, lane, account, size, order });
    return { inUse, broken: findBrokenShare(this.#capacity, inUse) };
  }

  end(delivery: Delivery): void {
    this.#running.delete(delivery);
  }
}

const nameOf = ({ message, attempt }: Delivery): string => `${message.account} ${message.id} ${attempt}`;

const add = (calls: readonly Call[], measure: (call: Call) => number): number =>
  calls.reduce((sum, call) => sum + measure(call), 0);
