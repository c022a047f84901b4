import type { Readable } from "node:stream";
import type { Burst } from "../../engine/core/limits/requestRate.ts";
import { tooManyRequests } from "../../engine/core/limits/requestRate.ts";
import type { Millis } from "../../engine/core/values/basics.ts";
import type { WebhookSource } from "../../engine/core/model/webhookSource.ts";
import { Refusal, errorCodes } from "../../engine/core/values/errors.ts";
import type { Store } from "../../engine/store/store.ts";
import { createBasicAuthenticator } from "../auth/basic.ts";
import type { Look, Proof } from "../auth/bearer.ts";
import { createAuthenticator } from "../auth/bearer.ts";
import type { OwnHosts } from "../auth/ownHosts.ts";
import { notAttempts } from "../auth/lockout.ts";
import { burstHeaders } from "../auth/bursts.ts";
import type { BrowserRequest } from "../auth/consoleRequest.ts";
import type { PageRequest, PageSettings } from "../auth/pageRule.ts";
import { assertAllowedPage } from "../auth/pageRule.ts";
import type { ConsoleSessions, SessionProof } from "../auth/consoleSessions.ts";
import type { AccessCounters } from "../auth/accessCounters.ts";
import { createAccessCounters } from "../auth/accessCounters.ts";
import type { BodyOwner } from "../http/requestBodyLimits.ts";
import { RequestBodyLimits, maxReservedBytes } from "../http/requestBodyLimits.ts";
import { ResponseLimits } from "../http/responseLimits.ts";
import type { ShownAttempt } from "../auth/shownAttempt.ts";
import { findAttempt } from "../auth/shownAttempt.ts";
import { assertHook, parseHookParams } from "../publishing/hookUrl.ts";
import { findSourceBySecret } from "../publishing/sourceUrl.ts";
import { assertOperator } from "../route/operator.ts";
import type { RouteContext, Route } from "../route/route.ts";
import { assertRights } from "./routeRights.ts";

/** The parts that an admission policy is built from. */
export type AdmissionParts = Pick<RouteContext, "operator"> & {
  store: Store;
  now(): Millis;
  /**
   * The counters. All ports of a server share them, so that a client gets no further attempts at another
   * port. Default: separate counters for this port.
   */
  counted?: AccessCounters;
  /** The limit of request bodies in flight, in bytes. */
  requestBodyBytes?: number;
  /** The limit of long responses in flight of one account, in bytes. */
  longResponseBytes?: number;
  /** The sessions of the console. Default: the console is turned off. */
  sessions?: ConsoleSessions;
  /** Origins whose pages may send requests, or `*`. Default: none. */
  corsOrigins?: readonly string[];
  /** Default: those of a server that is not for development and has no names. */
  hosts?: OwnHosts;
};

const noHosts: OwnHosts = { publicUrl: "", listensOn: "", allowed: [], isDevelopment: false };

/**
 * The credentials of a request. `parameter` is the token in its query. `params` are the parameters in its
 * path.
 */
export type Credentials = {
  authorization: string | undefined;
  parameter: string | null;
  params: Readonly<Record<string, string>>;
  address: string | null;
  /** Returns the value of a header. Absent if the page that sent the request was already checked. */
  header?: PageRequest["header"];
  /** The token of an attempt. Only its route reads it. */
  attemptToken?: string | undefined;
  /** Present if the request may belong to a session of the console, or is for a route of the console. */
  browser?: BrowserRequest | undefined;
};

/** The sender of a request, as its credentials prove. The body of the request is counted for `sender`. */
export type Caller = {
  proof: Proof | null;
  source: WebhookSource | null;
  sender: BodyOwner;
  /** The name of the operator, if a session of the operator has proved the request. */
  operatorName?: string;
  /** The attempt whose token was shown. */
  attempt?: ShownAttempt;
};

/** A request to admit, with its sender and its route. */
export type Entry = {
  caller: Caller;
  route: Route;
  /** Returns the bytes of the body that take room at once. Called when the room is taken. */
  bytes(): number;
  /** Called with headers for the response, even if the request is refused. */
  tell(headers: Readonly<Record<string, string>>): void;
};

/** Releases the room that a body took. Null if it took none. */
export type Leave = (() => void) | null;

/** A request that was admitted without waiting. `leave` releases the room of its body. */
export type AdmittedAtOnce = { proof: Proof; leave(): void };

/**
 * The admission policy of one port. The framework and the fast path both admit requests by it, and no rule
 * of admission is anywhere else:
 *
 * - Who may send: `identify` checks the page that a request may come from, credentials, and the lockout after
 *   failed attempts. `admit` checks the rights of the token.
 * - How much at once: `admit` and `receive` limit the bytes of request bodies in flight, in all and per
 *   account. `responses` limits the long responses in flight of an account.
 * - How fast: `admit` limits the requests per second of an account. `reasonFor` and `excess` limit the
 *   refused requests per second of an address.
 *
 * The policy is built once, when the port is made. On both paths, a connection has one request in flight at a
 * time (`api/route/pipelining.ts`).
 */
export class AdmissionPolicy {
  /** Long responses in flight. */
  readonly responses: ResponseLimits;
  readonly #parts: AdmissionParts;
  readonly #counted: AccessCounters;
  readonly #bodies: RequestBodyLimits;
  readonly #bearer: ReturnType<typeof createAuthenticator>;
  readonly #identifyHolder: ReturnType<typeof createBasicAuthenticator>;
  readonly #pages: PageSettings;
  #isClosing = false;

  constructor(parts: AdmissionParts) {
    const { store } = parts;
    this.#parts = parts;
    this.#counted = parts.counted ?? createAccessCounters(() => parts.now());
    this.#bodies = new RequestBodyLimits(parts.requestBodyBytes);
    this.responses = new ResponseLimits(parts.longResponseBytes);
    this.#bearer = createAuthenticator({ store, now: () => parts.now() });
    this.#identifyHolder = createBasicAuthenticator(store);
    this.#pages = { hosts: parts.hosts ?? noHosts, corsOrigins: parts.corsOrigins ?? [] };
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
  assertOpen(): void {
    if (this.#isClosing) throw new Refusal("stopping", "the server is stopping; retry later");
  }

  /**
   * Finds who sends a request, by the credentials that its route asks for. Throws `Refusal`, or rejects
   * with it.
   */
  identify(route: Route, credentials: Credentials): Caller | Promise<Caller> {
    return this.#identify(route, credentials, { attempts: this.#counted.lockout, isFresh: false });
  }

  #identify(route: Route, credentials: Credentials, look: Look): Caller | Promise<Caller> {
    const { authorization, parameter, params, address, browser, header } = credentials;
    const { store, sessions } = this.#parts;
    const { method, access } = route;
    if (header) assertAllowedPage({ method, access, authorization, header }, this.#pages);
    if (browser && sessions && takesSession(route) && authorization === undefined && parameter === null)
      return this.#identifySession(sessions, { route, browser, address });
    const from = (): { address: string | null } => ({ address });
    switch (access) {
      case "open":
        this.#countOpen(route, address);
        return nobody;
      case "console":
        throw new Refusal("forbidden", "session: a request of the console has no token");
      case "source":
        return findSourceBySecret(store, params["secret"] ?? "").then((source) => ({
          proof: null,
          source,
          sender: source.account,
        }));
      case "hook": {
        // The caller has shown only the URL, which contains the account.
        const named = parseHookParams(params);
        return assertHook(store, named).then(() => ({ ...nobody, sender: named.userId }));
      }
      case "attempt":
        return findAttempt(store, credentials.attemptToken).then((attempt) => ({
          ...nobody,
          sender: attempt.account,
          attempt,
        }));
      case "account":
        if (route.takesTokens && /^bearer /i.test(authorization ?? ""))
          return this.#bearer
            .authenticate({ authorization, parameter: null, from, ...look })
            .then(callerWith);
        return this.#identifyHolder({ authorization, from, ...look }).then(callerWith);
      case "operator":
        assertOperator(this.#parts, authorization, { ...look, address });
        return nobody;
      case "token": {
        // Almost every token is cached, and a promise here would cost every publish 1 µs.
        const known = look.isFresh ? null : this.#bearer.getCached(authorization);
        if (route.headerOnly && authorization === undefined && parameter !== null) throw headerOnlyRefusal();
        const tokens = { authorization, parameter: route.headerOnly ? null : parameter };
        return known
          ? callerWith(known)
          : this.#bearer.authenticate({ ...tokens, from, ...look }).then(callerWith);
      }
    }
  }

  /** Finds who sends a request without a token, by a session of the console. */
  async #identifySession(
    sessions: ConsoleSessions,
    { route, browser, address }: { route: Route; browser: BrowserRequest; address: string | null },
  ): Promise<Caller> {
    if (route.access === "console") {
      this.#countOpen(route, address);
      sessions.check(browser);
      return nobody;
    }
    if (route.access === "operator")
      return { ...nobody, operatorName: (await sessions.proveOperator(browser)).name };
    const proof = await sessions.prove(browser);
    if (route.access === "account" && !route.takesTokens) assertHoldsPassword(proof);
    return callerWith(proof);
  }

  /** Checks a token or a password that a person gives to open a session. Throws `Refusal`. */
  async checkLogin(access: "token" | "account" | "operator", authorization: string, address: string | null) {
    const row = { access, tag: "" };
    return this.identify(row as Route, { authorization, parameter: null, params: {}, address });
  }

  /**
   * Admits a request whose sender is known: checks the rights of the token, counts the request towards the
   * limit per second, and takes room for its body. Throws `Refusal`, or rejects with it. Returns a promise
   * only if other nodes share the count.
   */
  admit(entry: Entry): Leave | Promise<Leave> {
    const { proof } = entry.caller;
    if (proof) assertRights(proof, entry.route);
    const burst =
      proof && isCounted(entry.route) ? this.#counted.bursts.count(proof.account, this.#parts.now()) : null;
    return burst instanceof Promise
      ? burst.then((counted) => this.#enter(entry, counted))
      : this.#enter(entry, burst);
  }

  /**
   * Checks the credentials and the rights of a request that runs for long, as they are stored now. Ignores
   * the lockout, which is about attempts: it must not hide that a token was revoked. Throws `Refusal`.
   */
  async recheck(route: Route, credentials: Credentials): Promise<void> {
    const { proof } = await this.#identify(route, credentials, { attempts: notAttempts, isFresh: true });
    if (proof) assertRights(proof, route);
  }

  /**
   * Admits a request with a bearer token like `identify` and `admit`, if that can be decided without waiting.
   * Returns "unknown" if the token has to be looked up first (`lookUp`), and null if the request needs
   * `identify` and `admit`. Throws `Refusal`.
   */
  admitAtOnce(
    { authorization, header }: { authorization: string; header: PageRequest["header"] },
    route: Route,
    bytes: number,
  ): AdmittedAtOnce | "unknown" | null {
    const { method, access } = route;
    assertAllowedPage({ method, access, authorization, header }, this.#pages);
    if (this.#isClosing || access !== "token" || isCounted(route) || bytes > maxReservedBytes) return null;
    const proof = this.#bearer.getCached(authorization);
    if (proof === null) return "unknown";
    assertRights(proof, route);
    return { proof, leave: this.#bodies.reserve(proof.account.id, bytes) };
  }

  /**
   * Looks up a bearer token, so that it is known for a few seconds. An unknown token is not counted as a
   * failed attempt. Never rejects.
   */
  lookUp(authorization: string): Promise<unknown> {
    return this.#bearer.lookUp(authorization);
  }

  /** Takes room for a large body while it arrives. */
  receive(sender: BodyOwner, body: Readable): ReturnType<RequestBodyLimits["countBody"]> {
    return this.#bodies.countBody(sender, body);
  }

  /**
   * Returns the error with which to refuse a request. The request counts towards the limit of its address if
   * its sender has proved neither an account nor an attempt. (Limits of the account apply otherwise.)
   * `isExcess`: the address is over its limit, and `reason` is the refusal that says this.
   */
  reasonFor(
    error: unknown,
    { isProved, address }: { isProved: boolean; address: string | null },
  ): { reason: Error; isExcess: boolean } {
    const counts = error instanceof Refusal && errorCodes[error.code].status < 500 && !isProved;
    const excess = counts ? this.#counted.refused.count(address) : null;
    const reason = excess ?? error;
    return {
      reason: reason instanceof Error ? reason : new Error(String(reason)),
      isExcess: excess !== null,
    };
  }

  /**
   * Returns the refusal if one more refused request of an address would be over the limit, otherwise null.
   * Counts nothing.
   */
  excess(address: string | null): Refusal | null {
    return this.#counted.refused.findExcess(address);
  }

  /**
   * Counts a request that needs no credentials as a refused one, except for health reports. Throws `Refusal`
   * if the address is over its limit. In that case `reasonFor` counts the request.
   */
  #countOpen({ tag }: Route, address: string | null): void {
    if (tag === "Health") return;
    const excess = this.excess(address);
    if (excess) throw excess;
    this.#counted.refused.count(address);
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

/**
 * Reports whether the requests of a route count towards the requests per second of an account. Publishes,
 * triggers and steps of runs do not count.
 */
const isCounted = ({ operation }: Route): boolean => operation === undefined;

/** Reports whether a session may prove the sender of a request to a route. */
const takesSession = ({ access, refusesSession }: Route): boolean =>
  (access === "token" || access === "account" || access === "operator" || access === "console") &&
  refusesSession === undefined;

/** Throws `Refusal` unless the password of the account, or of the operator, has opened a session. */
function assertHoldsPassword({ session: { opener } }: SessionProof): void {
  if (opener.kind !== "password" && opener.kind !== "operator")
    throw new Refusal(
      "forbidden",
      "session: this needs the account's password; log in with the user name and the password",
    );
}

const headerOnlyRefusal = (): Refusal =>
  new Refusal(
    "unauthorized",
    "token: missing; this request takes it only in the header Authorization: Bearer <token>, " +
      "so that a link cannot send it",
  );

const nobody: Caller = { proof: null, source: null, sender: "" };

const callerWith = (proof: Proof): Caller => ({ proof, source: null, sender: proof.account.id });
