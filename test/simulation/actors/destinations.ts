import type { Delivery } from "../../../src/engine/core/model/delivery.ts";
import type { HeaderList, Millis } from "../../../src/engine/core/values/basics.ts";
import type { Outcome } from "../../../src/engine/core/model/attempt.ts";
import { parseHost } from "../../../src/engine/core/values/url.ts";
import type { RandomSource } from "../randomSource.ts";

/** How a host behaves. `deadly`: a node that calls it dies. */
export type HostBehavior =
  | "good"
  | "failing"
  | "refusing"
  | "busy"
  | "flapping"
  | "slow"
  | "hanging"
  | "dying"
  | "deadly"
  | "mixed";

/** How a host reacts to a call. If `after` is infinite, it never responds. */
export type Reaction = {
  after: Millis;
  status: number | null;
  headers: HeaderList;
  body: string;
  error: string | null;
  kills: boolean;
};

const behaviors: readonly HostBehavior[] = [
  "good",
  "good",
  "good",
  "failing",
  "refusing",
  "busy",
  "flapping",
  "slow",
  "slow",
  "hanging",
  "dying",
  "deadly",
  "mixed",
];
const hour = 3_600_000;

/** The hosts of a simulation, by name. */
export class SimulatedHosts {
  readonly hosts: readonly string[];
  readonly #behaviors: ReadonlyMap<string, HostBehavior>;
  readonly #random: RandomSource;

  constructor(random: RandomSource, count: number) {
    this.#random = random;
    // One host is always good, so that something can succeed.
    this.#behaviors = new Map(
      Array.from({ length: count }, (_, index) => [
        `host-${index}.example`,
        index === 0 ? "good" : random.of(behaviors),
      ]),
    );
    this.hosts = [...this.#behaviors.keys()];
  }

  getBehavior(host: string): HostBehavior {
    return this.#behaviors.get(host) ?? "good";
  }

  react(delivery: Delivery, now: Millis): Reaction {
    return this.#reactAs(this.getBehavior(parseHost(delivery.message.url)), now);
  }

  #reactAs(nature: HostBehavior, now: Millis): Reaction {
    const random = this.#random;
    const soon = random.integerBetween(1, 80);
    switch (nature) {
      case "good":
        return answer(soon, random.of([200, 201, 202, 204, 299]));
      case "failing":
        return answer(soon, random.of([100, 300, 302, 400, 404, 489, 500, 503]));
      case "refusing":
        return answer(soon, 489, [
          [random.of(["Svc-Nonretryable-Error", "Upstash-Nonretryable-Error"]), "true"],
        ]);
      case "busy":
        return random.isHit(0.6)
          ? answer(soon, 429, [["Retry-After", random.of(["0", "1", "20", "1m30s", "2000000"])]])
          : answer(soon, 200);
      case "flapping":
        return Math.floor(now / 20_000) % 2 === 0 ? answer(soon, 200) : answer(soon, 503);
      case "slow":
        return answer(random.integerBetween(5_000, 90_000), random.of([200, 200, 500]));
      case "hanging":
        return { ...answer(Infinity, 0), status: null };
      case "dying":
        return { ...answer(soon, 0), status: null, error: "connection reset by peer" };
      case "deadly":
        return { ...answer(soon, 200), kills: random.isHit(0.7) };
      case "mixed":
        return this.#reactAs(
          random.of(behaviors.filter((other) => other !== "mixed" && other !== "deadly")),
          now,
        );
    }
  }
}

const answer = (after: Millis, status: number, headers: HeaderList = []): Reaction => ({
  after,
  status,
  headers,
  error: null,
  kills: false,
  body: `answer ${status}`,
});

/** Returns the outcome of a reaction, within the timeout of the message. */
export function toOutcome(
  { message, attempt }: Delivery,
  reaction: Reaction | "aborted",
): { after: Millis; outcome: Outcome } {
  const of = { account: message.account, messageId: message.id, host: parseHost(message.url), attempt };
  const none = { ...of, status: null, headers: [], body: new Uint8Array(0) };
  if (reaction === "aborted") return { after: 0, outcome: { ...none, error: "aborted", took: 0 } };
  const after = Math.min(reaction.after, message.timeout, 12 * hour);
  if (reaction.after > message.timeout)
    return { after, outcome: { ...none, error: "no response in time", took: after } };
  const { status, headers, error } = reaction;
  const body = status === null ? new Uint8Array(0) : new TextEncoder().encode(reaction.body);
  return { after, outcome: { ...of, status, headers, body, error, took: after } };
}
