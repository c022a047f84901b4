import type { Readable } from "node:stream";
import type { Burst } from "../../core/accounts/requestRate.ts";
import { tooManyRequests } from "../../core/accounts/requestRate.ts";
import type { Millis, WebhookSource } from "../../core/model/message.ts";
import { Refusal, errorCodes } from "../../core/values/errors.ts";
import type { Store } from "../../store/store.ts";
import { createBasicAuthenticator } from "../auth/basic.ts";
import type { Proof } from "../auth/bearer.ts";
import { createAuthenticator } from "../auth/bearer.ts";
import { burstHeaders } from "../auth/bursts.ts";
import type { AccessCounters } from "../auth/accessCounters.ts";
import { createAccessCounters } from "../auth/accessCounters.ts";
import type { BodyOwner } from "../http/requestBodyLimits.ts";
import { RequestBodyLimits, maxReservedBytes } from "../http/requestBodyLimits.ts";
import { ResponseLimits } from "../http/responseLimits.ts";
import { checkHook, parseHookParams } from "../publishing/hookUrl.ts";
import { findSourceBySecret } from "../publishing/sourceUrl.ts";
import { checkOperator } from "../route/operator.ts";
import type { RouteContext, Route } from "../route/route.ts";
import { checkRights } from "./rights.ts";

/** What an admission policy is built from. */
export type AdmissionParts = Pick<RouteContext, "operator"> & {
  store: Store;
  now(): Millis;
  /**
   * Shared by all ports of a server, so that asking at another port gives no further tries. Default: counts
   * of this port alone.
   */
  counted?: AccessCounters;
  /** The limit of request bodies in flight, in bytes. */
  intakeBytes?: number;
  /** The limit of long responses in flight of one account, in bytes. */
  outflowBytes?: number;
};

/**
 * What a request shows of its sender. `parameter` is the token in its query, and `params` are those of its
 * path.
 */
export type Credentials = {
  authorization: string | undefined;
  parameter: string | null;
  params: Readonly<Record<string, string>>;
  address: string | null;
};

/** Who sends a request, as far as it is proved. `sender` is whom its body is counted for. */
export type Caller = { proof: Proof | null; source: WebhookSource | null; sender: BodyOwner };

/** A request at the door. */
export type Entry = {
  caller: Caller;
  route: Route;
  /** Returns the bytes of the body that take their room at once. It is called when the room is taken. */
  bytes(): number;
  /** Is called with headers of the response, also if the request is refused. */
  tell(headers: Readonly<Record<string, string>>): void;
};

/** Gives back the room of a body. Null: it takes none. */
export type Leave = (() => void) | null;

/** A request that was admitted without waiting. `leave` gives back the room of its body. */
export type AdmittedAtOnce = { proof: Proof; leave(): void };

/**
 * The admission policy of one port. The framework and the fast path both admit requests by it, and no rule
 * of admission is anywhere else:
 *
 * - who may: the credentials that a route asks for (`identify`), the lockout after failed tries, the rights
 *   of the token (`admit`);
 * - how much at once: bytes of request bodies in flight, in all and per account (`admit`, `receive`), long
 *   responses in flight of an account (`responses`), refused requests of an address in a second
 *   (`reasonFor`, `excess`);
 * - how fast: requests of an account in a second (`admit`).
 *
 * It is built once, when the port is made. A connection has one request in flight at a time on both paths
 * (`api/route/pipelining.ts`).
 */
export class AdmissionPolicy {
  /** Long responses in flight. */
  readonly responses: ResponseLimits;
  readonly #parts: AdmissionParts;
  readonly #counted: AccessCounters;
  readonly #bodies: RequestBodyLimits;
  readonly #bearer: ReturnType<typeof createAuthenticator>;
  readonly #identifyHolder: ReturnType<typeof createBasicAuthenticator>;
  #isClosing = false;

  constructor(parts: AdmissionParts) {
    const { store } = parts;
    this.#parts = parts;
    this.#counted = parts.counted ?? createAccessCounters(() => parts.now());
    const { lockout } = this.#counted;
    this.#bodies = new RequestBodyLimits(parts.intakeBytes);
    this.responses = new ResponseLimits(parts.outflowBytes);
    this.#bearer = createAuthenticator({ store, now: () => parts.now(), lockout });
    this.#identifyHolder = createBasicAuthenticator({ store, lockout });
  }

  /** Refuses all requests from now on. */
  close(): void {
    this.#isClosing = true;
  }

  /** Reports whether all requests are refused because the server is stopping. */
  get isClosing(): boolean {
    return this.#isClosing;
  }

  /** Throws `Refusal` if the server is stopping. */
  mustBeOpen(): void {
    if (this.#isClosing) throw new Refusal("stopping", "the server is stopping; ask again");
  }

  /**
   * Finds who sends a request, by the credentials that its route asks for. Throws `Refusal`, or rejects
   * with it.
   */
  identify(route: Route, credentials: Credentials): Caller | Promise<Caller> {
    const { authorization, parameter, params, address } = credentials;
    const { store } = this.#parts;
    const { lockout } = this.#counted;
    const from = (): { address: string | null } => ({ address });
    switch (route.access) {
      case "open":
        this.#countOpen(route, address);
        return nobody;
      case "source":
        return findSourceBySecret(store, params["secret"] ?? "").then((source) => ({ proof: null, source, sender: source.account }));
      case "hook": {
        // The caller has shown nothing but the URL, in which the account is.
        const named = parseHookParams(params);
        return checkHook(store, named).then(() => ({ ...nobody, sender: named.userId }));
      }
      case "account":
        return this.#identifyHolder(authorization, from).then(callerWith);
      case "operator":
        checkOperator(this.#parts, authorization, { lockout, address });
        return nobody;
      case "token": {
        // Almost every token is remembered, and a promise here would cost every publish a microsecond.
        const known = this.#bearer.getCached(authorization);
        return known ? callerWith(known) : this.#bearer.authenticate({ authorization, parameter, from }).then(callerWith);
      }
    }
  }

  /**
   * Admits a request whose sender is known: checks the rights of the token, counts the request in its
   * second and takes the room for its body. Throws `Refusal`, or rejects with it. Returns a promise only if
   * other nodes share the count.
   */
  admit(entry: Entry): Leave | Promise<Leave> {
    const { proof } = entry.caller;
    if (proof) checkRights(proof, entry.route);
    const burst = proof && isCounted(entry.route) ? this.#counted.bursts.count(proof.account, this.#parts.now()) : null;
    return burst instanceof Promise ? burst.then((told) => this.#enter(entry, told)) : this.#enter(entry, burst);
  }

  /**
   * The same for a request with a bearer token, if it can be decided without waiting. Returns "unknown" if
   * the token has to be looked up first (`lookUp`), and null if the request needs `identify` and `admit`.
   * Throws `Refusal`.
   */
  admitAtOnce(authorization: string, route: Route, bytes: number): AdmittedAtOnce | "unknown" | null {
    if (this.#isClosing || route.access !== "token" || isCounted(route) || bytes > maxReservedBytes) return null;
    const proof = this.#bearer.getCached(authorization);
    if (proof === null) return "unknown";
    checkRights(proof, route);
    return { proof, leave: this.#bodies.reserve(proof.account.id, bytes) };
  }

  /**
   * Looks up a bearer token, so that it is known for a few seconds. An unknown token is not counted as a
   * failed try. Never rejects.
   */
  lookUp(authorization: string): Promise<unknown> {
    return this.#bearer.lookUp(authorization);
  }

  /** Counts a body that is too large to take its room at once, as it arrives. */
  receive(sender: BodyOwner, body: Readable): ReturnType<RequestBodyLimits["countBody"]> {
    return this.#bodies.countBody(sender, body);
  }

  /**
   * Returns what to refuse a request with. The request is counted against its address, unless its sender
   * has proved an account: then the limits of the account apply. `isExcess`: the address is over its limit,
   * and the refusal says so.
   */
  reasonFor(error: unknown, { proof, address }: { proof: Proof | null; address: string | null }): { reason: Error; isExcess: boolean } {
    const counts = error instanceof Refusal && errorCodes[error.code].status < 500 && !proof;
    const excess = counts ? this.#counted.refused.count(address) : null;
    const reason = excess ?? error;
    return { reason: reason instanceof Error ? reason : new Error(String(reason)), isExcess: excess !== null };
  }

  /**
   * Returns the refusal if one more refused request of an address would be over the limit, otherwise null.
   * Counts nothing.
   */
  excess(address: string | null): Refusal | null {
    return this.#counted.refused.findExcess(address);
  }

  /** Requests without credentials count as refused ones. Health reports do not count. */
  #countOpen({ tag }: Route, address: string | null): void {
    const excess = tag === "Health" ? null : this.#counted.refused.count(address);
    if (excess) throw excess;
  }

  #enter({ caller: { proof, sender }, route, bytes, tell }: Entry, burst: Burst | null): Leave {
    if (proof && burst) {
      tell(burstHeaders(burst));
      if (!burst.taken) throw tooManyRequests(proof.account, burst);
    }
    const size = route.access === "open" ? 0 : bytes();
    return size === 0 ? null : this.#bodies.reserve(sender, size);
  }
}

/** Work itself is not counted in a second: only requests about it are. */
const isCounted = ({ operation }: Route): boolean => operation === undefined;

const nobody: Caller = { proof: null, source: null, sender: "" };

const callerWith = (proof: Proof): Caller => ({ proof, source: null, sender: proof.account.id });
