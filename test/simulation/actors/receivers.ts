import { Refusal } from "../../../src/engine/core/values/errors.ts";
import type { Delivery } from "../../../src/engine/core/model/delivery.ts";
import type { AttemptReport } from "../../../src/engine/core/commands/reportAttempt.ts";
import type { VirtualTime } from "../virtualTime.ts";
import type { RandomSource } from "../randomSource.ts";
import type { Reaction } from "./destinations.ts";
import type { SimulatedNode } from "./node.ts";

type ReceiversOptions = {
  random: RandomSource;
  virtualTime: VirtualTime;
  /** Returns the nodes that accept requests. */
  openNodes(): SimulatedNode[];
};

/** Receivers that take over attempts and report their outcomes later, or never, to any node. */
export class SimulatedReceivers {
  readonly #options: ReceiversOptions;

  constructor(options: ReceiversOptions) {
    this.#options = options;
  }

  /** Returns how long messages ask their receivers to report. Absent: their responses are the outcomes. */
  pickTimeout(): { ackTimeout?: number } {
    const { random } = this.#options;
    return random.isHit(0.5) ? { ackTimeout: random.integerBetween(1_000, random.of([5_000, 120_000])) } : {};
  }

  /** Returns the response to an attempt. Mostly, the receiver takes over an attempt that would succeed. */
  respond(delivery: Delivery, reaction: Reaction): Reaction {
    const { random } = this.#options;
    const { ackTimeout, ackKey } = delivery.message;
    if (ackKey === undefined || ackTimeout === undefined || reaction.status === null) return reaction;
    if (reaction.status >= 300 || random.isHit(0.2)) return reaction;
    this.#work(delivery, reaction.after, ackTimeout);
    const prefix = random.of(["Svc", "Upstash"]);
    const shorter = random.isHit(0.2) ? [[`${prefix}-Ack-Timeout`, "800ms"] as const] : [];
    return { ...reaction, status: 202, headers: [[`${prefix}-Ack`, "later"], ...shorter] };
  }

  #work(delivery: Delivery, after: number, ackTimeout: number): void {
    const { random } = this.#options;
    const ends = random.of(["soon", "soon", "late", "never"]);
    if (ends === "never") return;
    const time =
      ends === "soon" ? random.integerBetween(0, 1_000) : Math.floor(ackTimeout * random.next() * 1.5);
    const report = this.#makeReport(delivery);
    if (random.isHit(0.3))
      this.#after(Math.floor((after + time) / 2), (node) => this.#extend(node, delivery));
    this.#after(after + time, (node) => this.#report(node, report));
    const again = random.next();
    if (again < 0.2)
      this.#after(after + time + random.of([0, 1, 5_000]), (node) => this.#report(node, report));
    if (again > 0.8) {
      const other = this.#makeReport(delivery);
      this.#after(after + time + random.of([0, 1, 5_000]), (node) => this.#report(node, other));
    }
  }

  #makeReport({ message, attempt }: Delivery): AttemptReport {
    const { random } = this.#options;
    const status = random.of([200, 200, 204, 489, 500]);
    return {
      ...{ account: message.account, messageId: message.id, attempt, digest: `digest of ${status}` },
      outcome: {
        status,
        headers: random.isHit(0.3) ? [["Retry-After", random.of(["0", "2"])]] : [],
        body: new TextEncoder().encode(`report ${status}`),
      },
    };
  }

  /** Sends something to a random node, and a few times more while the attempt is not acknowledged. */
  #after(delay: number, send: (node: SimulatedNode) => Promise<{ became?: string }>, tries = 6): void {
    const { random, virtualTime, openNodes } = this.#options;
    virtualTime.after(delay, { owner: "world", what: "receiver" }, () => {
      const nodes = openNodes();
      if (nodes.length === 0) return;
      send(random.of(nodes)).then(
        ({ became }) => {
          if (became === "early" && tries > 0) this.#after(200, send, tries - 1);
        },
        // A receiver that gets an error does not know the outcome. It repeats its report.
        (error: unknown) => {
          if (!(error instanceof Refusal) && tries > 0) this.#after(1_000, send, tries - 1);
        },
      );
    });
  }

  #report(node: SimulatedNode, report: AttemptReport): Promise<{ became?: string }> {
    return node.ask((store) => store.execute("reportAttempt", report));
  }

  async #extend(node: SimulatedNode, { message, attempt }: Delivery): Promise<{ became?: string }> {
    const { account, id: messageId } = message;
    const extension = this.#options.random.of([1_000, 60_000]);
    const input = { account, messageId, attempt, extension };
    const extended = await node.ask((store) => store.execute("extendAttempt", input));
    return "became" in extended ? extended : {};
  }
}
