import type { Socket } from "node:net";
import type { buildConnector } from "undici";
import type { LongWork } from "../../core/fairness/longWork.ts";
import type { ParsedUrl } from "../../core/values/url.ts";
import { alarm } from "../../clock/clock.ts";
import { HttpConnection, type RequestCaller } from "./connection.ts";
import { resolvingAccount } from "./dns.ts";
import { ConnectionAttempt } from "./connectionAttempt.ts";
import { SocketLimit } from "./sockets.ts";

export type ConnectionPoolOptions = {
  connector: buildConnector.connector;
  /** How many there may be to one origin. */
  perOrigin: number;
  longWork: LongWork;
  /** How many there may be to all origins, those that are being opened included. Absent: as many as are needed. */
  maxSockets?: number;
};

/** Why a request was not sent: the connections are closed. */
export class PoolClosed extends Error {}

/**
 * The connections of this node: to each origin (`https://shop.example:8443`) as many as are needed, up to a limit. An origin is forgotten
 * with its last connection, however many there are in a lifetime.
 */
export class ConnectionPool {
  readonly #options: ConnectionPoolOptions;
  readonly #sockets: SocketLimit;
  readonly #origins = new Map<string, Origin>();
  #cancelTick: (() => void) | null = null;
  #isClosed = false;

  constructor(options: ConnectionPoolOptions) {
    this.#options = options;
    this.#sockets = new SocketLimit(options.maxSockets ?? Infinity);
  }

  /** How many sockets there are, those that are being opened included. */
  get sockets(): number {
    return this.#sockets.count;
  }

  /** How many origins are remembered: those with a connection, or with a request that waits for one. */
  get count(): number {
    return this.#origins.size;
  }

  /** Sends the request as soon as there is a connection for it. What is returned takes it back while it waits for one. Throws `Closed`. */
  send(url: ParsedUrl, caller: RequestCaller): () => void {
    if (this.#isClosed) throw new PoolClosed();
    const { origin: name } = url;
    let origin = this.#origins.get(name);
    if (origin === undefined) {
      origin = new Origin(url, this.#options, {
        onIdle: () => this.#scheduleTick(),
        onEmpty: () => void this.#origins.delete(name),
        sockets: this.#sockets,
      });
      this.#origins.set(name, origin);
    }
    return origin.send(caller);
  }

  /** Cuts all of them; what runs on them, or waits for them, ends with an error. */
  close(): void {
    this.#isClosed = true;
    this.#cancelTick?.();
    for (const origin of [...this.#origins.values()]) origin.close();
    this.#origins.clear();
  }

  /** While any is idle, the time goes by for them. */
  #scheduleTick(): void {
    if (this.#cancelTick !== null || this.#isClosed) return;
    this.#cancelTick = alarm(1_000, () => {
      this.#cancelTick = null;
      let idleCount = 0;
      for (const origin of [...this.#origins.values()]) idleCount += origin.tick();
      if (idleCount > 0) this.#scheduleTick();
    });
  }
}

type OriginOwner = { onIdle(): void; onEmpty(): void; sockets: SocketLimit };

/** Connections to one origin, and what waits for one. */
class Origin {
  readonly #target: buildConnector.Options;
  readonly #options: ConnectionPoolOptions;
  readonly #owner: OriginOwner;
  readonly #open = new Set<HttpConnection>();
  /** The one that was used last goes first, so that those which are not needed grow old. */
  #idle: HttpConnection[] = [];
  /** An answer has ended on them in this turn of the event loop, or in the one before it. */
  #justUsed: HttpConnection[] = [];
  #settling: HttpConnection[] = [];
  readonly #waiting = new Set<RequestCaller>();
  /** Requests that met the end of a reused connection. Each is resent once, over a new connection. */
  readonly #resending = new Set<RequestCaller>();
  readonly #attempts = new Set<ConnectionAttempt>();
  /** The account whose request came last, and so the one for which a connection is opened. */
  #lastAccount = "";
  #isCheckScheduled = false;
  #isClosed = false;

  constructor({ hostname, host, protocol, port }: ParsedUrl, options: ConnectionPoolOptions, owner: OriginOwner) {
    this.#target = { hostname: hostname.replace(/^\[|\]$/g, ""), host, protocol, port };
    this.#options = options;
    this.#owner = owner;
  }

  send(caller: RequestCaller): () => void {
    const connection = this.#idle.pop();
    if (connection) {
      this.#owner.sockets.markBusy(connection);
      connection.send(caller);
    } else {
      this.#waiting.add(caller);
      this.#lastAccount = caller.account ?? "";
      this.#openMore();
    }
    return () => {
      if (this.#waiting.delete(caller) || this.#resending.delete(caller)) this.#abandonExcess();
    };
  }

  /** Nobody waits any longer for the connection that has been opening for longest: it may never open, and keeps a socket meanwhile. */
  #abandonExcess(): void {
    if (this.#isClosed || this.#attempts.size <= this.#missingConnections) return;
    const abandoned = [...this.#attempts].find((attempt) => attempt.abandon());
    if (abandoned) this.#attempts.delete(abandoned);
    this.#openMore();
  }

  /** A second went by. Answers how many are not in use still. */
  tick(): number {
    const old = this.#idle.filter((connection) => --connection.idleSeconds <= 0);
    if (old.length > 0) this.#idle = this.#idle.filter((connection) => connection.idleSeconds > 0);
    for (const connection of old) connection.close(null);
    return this.#idle.length + this.#justUsed.length + this.#settling.length;
  }

  close(): void {
    this.#isClosed = true;
    const waiting = [...this.#waiting, ...this.#resending];
    this.#waiting.clear();
    this.#resending.clear();
    this.#idle = [];
    this.#justUsed = [];
    this.#settling = [];
    for (const attempt of [...this.#attempts]) if (attempt.abandon()) this.#attempts.delete(attempt);
    for (const caller of waiting) caller.onFailure(new PoolClosed());
    for (const connection of [...this.#open]) connection.close(new PoolClosed());
  }

  onFree(connection: HttpConnection): void {
    this.#justUsed.push(connection);
    this.#owner.onIdle();
    this.#scheduleReuse();
  }

  onGone(connection: HttpConnection, unanswered: RequestCaller | null): void {
    if (this.#open.delete(connection)) this.#owner.sockets.release();
    this.#owner.sockets.markBusy(connection);
    removeFrom(connection, this.#idle);
    removeFrom(connection, this.#justUsed);
    removeFrom(connection, this.#settling);
    if (unanswered) this.#resend(unanswered);
    this.#openMore();
  }

  /** Also closes the idle connections: they have been idle for longer, because the most recently used one is taken first. */
  #resend(caller: RequestCaller): void {
    if (this.#isClosed) return caller.onFailure(new PoolClosed());
    this.#resending.add(caller);
    for (const connection of [...this.#idle]) connection.close(null);
  }

  /**
   * No connection is used again before Node has looked once more at what came in on it: a destination that closes it without a word
   * would cost the next request its attempt, and bytes that nobody asked for would be taken for its answer. An immediate comes after
   * the look in which the answer ended, and a second one after the next.
   */
  #scheduleReuse(): void {
    if (this.#isCheckScheduled) return;
    this.#isCheckScheduled = true;
    setImmediate(() => {
      this.#isCheckScheduled = false;
      const checked = this.#settling;
      this.#settling = this.#justUsed;
      this.#justUsed = [];
      const before = this.#idle.length;
      this.#idle.push(...checked);
      while (this.#idle.length > 0) {
        const next = takeFirst(this.#waiting);
        if (!next) break;
        const connection = this.#idle.pop();
        if (connection) this.#owner.sockets.markBusy(connection);
        connection?.send(next);
      }
      for (const connection of this.#idle.slice(before)) this.#owner.sockets.markIdle(connection);
      if (this.#settling.length + this.#justUsed.length > 0) this.#scheduleReuse();
    });
  }

  /** How many requests need a connection that is not open yet. Reused connections serve those that wait, and none that is resent. */
  get #missingConnections(): number {
    const reusable = this.#idle.length + this.#justUsed.length + this.#settling.length;
    return this.#resending.size + Math.max(0, this.#waiting.size - reusable);
  }

  /** The request that a new connection serves first. A resent one has used up some of its time, and no other connection serves it. */
  #takeNext(): RequestCaller | undefined {
    return takeFirst(this.#resending) ?? takeFirst(this.#waiting);
  }

  #openMore(): void {
    while (this.#attempts.size < this.#missingConnections && this.#attempts.size + this.#open.size < this.#options.perOrigin)
      this.#connect();
    if (this.#attempts.size + this.#open.size === 0) this.#owner.onEmpty();
  }

  #connect(): void {
    const attempt = new ConnectionAttempt({
      target: this.#target,
      sockets: this.#owner.sockets,
      connector: (target, answered) => resolvingAccount.run(this.#lastAccount, () => this.#options.connector(target, answered)),
      isWanted: () => this.#waiting.size + this.#resending.size > 0,
      onOpened: (socket) => {
        this.#attempts.delete(attempt);
        this.#handleOpened(socket);
      },
      onFailed: (error) => {
        this.#attempts.delete(attempt);
        this.#handleFailed(error);
      },
    });
    this.#attempts.add(attempt);
    attempt.begin();
  }

  #handleOpened(socket: Socket): void {
    if (this.#isClosed) {
      this.#owner.sockets.release();
      return void socket.destroy();
    }
    const { longWork } = this.#options;
    const connection = new HttpConnection(socket, { host: this.#target.host ?? "", owner: this, longWork });
    this.#open.add(connection);
    const next = this.#takeNext();
    if (next) connection.send(next);
    else this.onFree(connection);
  }

  /** Told to the one that waits for longest, unless there is one for each. For each of the others another one is tried. */
  #handleFailed(error: unknown): void {
    if (this.#missingConnections > 0) this.#takeNext()?.onFailure(error);
    this.#openMore();
  }
}

function takeFirst(callers: Set<RequestCaller>): RequestCaller | undefined {
  const [first] = callers;
  if (first) callers.delete(first);
  return first;
}

function removeFrom(connection: HttpConnection, list: HttpConnection[]): void {
  const at = list.indexOf(connection);
  if (at >= 0) list.splice(at, 1);
}
