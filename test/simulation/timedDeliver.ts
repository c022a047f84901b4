import type { NewAccount } from "../../src/settings/credentials.ts";
import { parseHost } from "../../src/engine/core/values/url.ts";
import type { Delivery } from "../../src/engine/core/model/delivery.ts";
import type { Outcome } from "../../src/engine/core/model/attempt.ts";
import type { Deliver } from "../../src/engine/delivery/deliver.ts";
import type { VirtualTime } from "./virtualTime.ts";

/** A call of a destination. `at` is in milliseconds since the start. */
export type TimedCall = { at: number; host: string; delivery: Delivery };

/** The account of the tests. */
export const acme: NewAccount = {
  id: "acme",
  name: "",
  password: "",
  token: "",
  tokenHash: "",
  signingKeys: { current: "", next: "" },
};

type TimedDeliverOptions = {
  world: VirtualTime;
  start: number;
  calls: TimedCall[];
  /** How long a host takes to respond, in milliseconds. */
  answersAfter(host: string): number;
  /** The status of a host. Null: it hangs, and the call times out. Absent: 200. */
  respondsWith?(host: string): number | null;
};

/** Returns a `deliver` that records each call and responds after some virtual time. */
export function createTimedDeliver(options: TimedDeliverOptions): Deliver {
  const { world, start, calls, answersAfter, respondsWith = () => 200 } = options;
  const respond = async (delivery: Delivery): Promise<Outcome> => {
    const host = parseHost(delivery.message.url);
    calls.push({ at: world.now - start, host, delivery });
    await world.wait(answersAfter(host), { owner: "destination", what: "answer" });
    const status = respondsWith(host);
    const error = status === null ? "timed out after 1 s" : null;
    const took = answersAfter(host);
    const timing = { startedAt: world.now - took, connect: 0, firstByte: took, duration: took };
    return { ...identify(delivery), status, ...empty, error, took, timing };
  };
  return (delivery) => {
    const cut = Promise.withResolvers<Outcome>();
    const abort = (): void =>
      cut.resolve({ ...identify(delivery), status: null, ...empty, error: "aborted", took: 0 });
    return { outcome: Promise.race([respond(delivery), cut.promise]), abort };
  };
}

const empty = { headers: [], body: new Uint8Array(0) };

const identify = ({ message, attempt }: Delivery) => ({
  account: message.account,
  messageId: message.id,
  host: parseHost(message.url),
  attempt,
});
