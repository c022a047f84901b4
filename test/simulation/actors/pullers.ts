import { noResponse } from "../../../src/engine/core/sending/recordOutcome.ts";
import { Refusal } from "../../../src/engine/core/values/errors.ts";
import type { AttemptReport } from "../../../src/engine/core/commands/reportAttempt.ts";
import type { Delivery } from "../../../src/engine/core/model/delivery.ts";
import type { Store } from "../../../src/engine/store/store.ts";
import type { Pulled } from "../../../src/engine/delivery/pullers.ts";
import { withSentBody } from "../../sentBody.ts";
import type { RandomSource } from "../randomSource.ts";
import type { VirtualTime } from "../virtualTime.ts";
import type { Endpoints } from "./endpoints.ts";
import type { SimulatedNode } from "./node.ts";
import type { InvariantChecker } from "../checkers/invariantChecker.ts";
import { isWorkflow } from "./programs.ts";

type PullersOptions = {
  random: RandomSource;
  virtualTime: VirtualTime;
  endpoints: Endpoints;
  /** The hosts that are pulled. */
  hosts: readonly string[];
  /** Returns the accounts that exist. */
  accounts(): readonly string[];
  /** Returns the nodes that accept requests. */
  openNodes(): SimulatedNode[];
  checker: Pick<InvariantChecker, "deliveryStarted" | "deliveryEnded" | "happened">;
};

/**
 * Clients that pull messages from any node, lose responses, leave, ask for more time, report late or never.
 */
export class SimulatedPullers {
  /** From now on, all clients do their work, so that everything ends. */
  isCalm = false;
  /** From now on, nobody pulls. */
  isOver = false;
  readonly #options: PullersOptions;

  constructor(options: PullersOptions) {
    this.#options = options;
  }

  /** Declares some origins, and pulls again and again until the end. */
  start(): void {
    const { random, openNodes, accounts, hosts } = this.#options;
    const [node] = openNodes();
    for (const account of accounts())
      for (const host of hosts) if (node && random.isHit(0.5)) this.#declare(node, { account, host }, true);
    this.#act();
  }

  #actAgain(): void {
    const { random, virtualTime } = this.#options;
    virtualTime.after(random.gap(this.isCalm ? 20_000 : 1_500), { owner: "world", what: "puller" }, () =>
      this.#act(),
    );
  }

  #act(): void {
    if (this.isOver) return;
    this.#actAgain();
    const { random, openNodes, accounts, hosts } = this.#options;
    const nodes = openNodes();
    const all = accounts();
    if (nodes.length === 0 || all.length === 0) return;
    const node = random.of(nodes);
    const named = { account: random.of(all), host: random.of(hosts) };
    if (random.isHit(this.isCalm ? 0.2 : 0.03)) this.#declare(node, named, this.isCalm || random.isHit(0.6));
    this.#pull(node, named);
  }

  /** Declares that an origin is pulled, or removes it: its messages are then sent. */
  #declare(node: SimulatedNode, { account, host }: Named, isPulled: boolean): void {
    const name = isPulled ? "addPulledOrigin" : "removePulledOrigin";
    node.store.execute(name, { account, name: `https://${host}` }).catch(() => undefined);
  }

  #pull(node: SimulatedNode, named: Named): void {
    const { random, virtualTime, checker } = this.#options;
    const gone = new AbortController();
    const lease = this.isCalm ? 60_000 : random.of([1_000, 10_000, 60_000]);
    const wait = this.isCalm ? 60_000 : random.of([0, 500, 5_000, 20_000]);
    if (!this.isCalm && random.isHit(0.2))
      virtualTime.after(random.integerBetween(0, 5_000), { owner: "world", what: "leave" }, () =>
        gone.abort(),
      );
    const handle = (pulled: Pulled): void => {
      // A dead process sends nothing.
      if (pulled.attempts.length === 0 || node.isDead) return;
      const deliveries = pulled.attempts.map(({ delivery }) => withSentBody(delivery));
      for (const delivery of deliveries) {
        const lane = `${named.account} ${named.host}`;
        const running = node.dispatcher.deliveries.count;
        checker.deliveryStarted({ node: node.id, delivery, lane, running, lease });
      }
      // A slow client still reads when the lease was lost or given back, so it does not count as a request.
      const isSlow = !this.isCalm && random.isHit(0.2);
      const end = (): void => deliveries.forEach((delivery) => checker.deliveryEnded(delivery));
      if (isSlow) end();
      const took = random.integerBetween(0, isSlow ? 20_000 : 50);
      virtualTime.after(took, { owner: node.id, what: "response to a pull" }, () => {
        const isLost = gone.signal.aborted || (!this.isCalm && random.isHit(0.15));
        pulled.end(!isLost);
        end();
        checker.happened.add(isLost ? "pull lost" : "pulled");
        // The response may have arrived although its sender does not know.
        if (!isLost || random.isHit(0.3)) for (const delivery of deliveries) this.#work(delivery, lease);
      });
    };
    try {
      node.dispatcher.pullers
        .pull({ ...named, max: random.integerBetween(1, 3), wait, lease, hasLeft: gone.signal })
        .then(handle, () => undefined);
    } catch (error) {
      if (!(error instanceof Refusal)) throw error;
    }
  }

  #work(delivery: Delivery, lease: number): void {
    const { random, endpoints, virtualTime } = this.#options;
    if (!this.isCalm) this.#extend(delivery, lease);
    if (isWorkflow(delivery.message.url)) {
      void endpoints.respond(delivery).then(({ status, headers, body }) => {
        if (status !== null) this.#report(0, makeReport(delivery, { status, headers, body }));
      });
      return;
    }
    const ends = this.isCalm ? "soon" : random.of(["soon", "soon", "soon", "late", "never", "returned"]);
    virtualTime.note(`puller works on ${delivery.message.id} #${delivery.attempt}: ${ends}`);
    if (ends === "never") return;
    const time = ends !== "late" ? random.integerBetween(0, 900) : Math.floor(lease * random.next() * 1.5);
    const status = this.isCalm ? 200 : random.of([200, 200, 204, 489, 500]);
    const report =
      ends === "returned"
        ? giveBack(delivery)
        : makeReport(delivery, { status, headers: [], body: `pulled ${status}` });
    this.#report(time, report);
    if (random.isHit(0.2)) this.#report(time + random.of([0, 1, 5_000]), report);
  }

  /** Asks for more time, at times again, too late, or with the token of another attempt. */
  #extend({ message, attempt }: Delivery, lease: number): void {
    const { random } = this.#options;
    if (!random.isHit(0.4)) return;
    const input = {
      ...{ account: message.account, messageId: message.id },
      attempt: random.isHit(0.7) ? attempt : attempt + random.of([-1, 1]),
      extension: random.of([500, 10_000, 120_000]),
    };
    const extend = async (store: Store): Promise<{ became?: string }> => {
      const extended = await store.execute("extendAttempt", input);
      return "became" in extended ? extended : {};
    };
    const time = random.isHit(0.6) ? random.integerBetween(0, 900) : Math.floor(lease * random.next() * 1.5);
    this.#ask(time, extend);
    if (random.isHit(0.3)) this.#ask(time + random.of([0, 1, 5_000]), extend);
  }

  #report(delay: number, report: AttemptReport): void {
    this.#ask(delay, (store) => store.execute("reportAttempt", report));
  }

  /** Sends something to a random node, and a few times more while nobody knows that the attempt is held. */
  #ask(delay: number, send: (store: Store) => Promise<{ became?: string }>, tries = 6): void {
    const { random, virtualTime, openNodes } = this.#options;
    virtualTime.after(delay, { owner: "world", what: "puller" }, () => {
      const nodes = openNodes();
      if (nodes.length === 0) return;
      const again = (): void => (tries > 0 ? this.#ask(500, send, tries - 1) : undefined);
      random
        .of(nodes)
        .ask(send)
        .then(
          ({ became }) => (became === "early" ? again() : undefined),
          (error: unknown) => (error instanceof Refusal ? undefined : again()),
        );
    });
  }
}

type Named = { account: string; host: string };
type Response = Pick<AttemptReport["outcome"], "headers"> & { status: number; body: string };

const makeReport = ({ message, attempt }: Delivery, { status, headers, body }: Response): AttemptReport => ({
  ...{ account: message.account, messageId: message.id, attempt, digest: `digest of ${status} ${body}` },
  outcome: { status, headers, body: new TextEncoder().encode(body) },
});

const giveBack = ({ message, attempt }: Delivery): AttemptReport => ({
  ...{ account: message.account, messageId: message.id, attempt, digest: "returned" },
  outcome: { ...noResponse, isReturned: true },
});
