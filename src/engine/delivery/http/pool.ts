import type { Socket } from "node:net";
import type { buildConnector } from "undici";
import type { LongWork } from "../../core/node/longWork.ts";
import type { OpeningTiming } from "../../core/model/attempt.ts";
import type { ParsedUrl } from "../../core/values/url.ts";
import { alarm } from "../../clock/clock.ts";
import { ConnectionLost, HttpConnection, type RequestCaller } from "./connection.ts";
import { resolvingAccount } from "./dns.ts";
import { ConnectionAttempt } from "./connectionAttempt.ts";
import { SocketLimit } from "./sockets.ts";

/** How connections are opened, and how many. */
export type ConnectionPoolOptions = {
  connector: buildConnector.connector;
  /** The maximum number of connections to one origin. */
  perOrigin: number;
  longWork: LongWork;
  /** The maximum number of sockets to all origins, including those being opened. Absent: no limit. */
  maxSockets?: number;
};

/** The error of a request that was not sent or was aborted because the pool is closed. */
export class PoolClosed extends Error {}

/**
 * The connections of this node. Each origin (`https://shop.example:8443`) has as many as it needs, up to a
 * limit. An origin is removed together with its last connection, so the number of origins in memory does not
 * grow over time.
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

  /** The number of sockets, including those being opened. */
  get sockets(): number {
    return this.#sockets.count;
  }

  /** The number of remembered origins: those with a connection, or with a request that waits for one. */
  get count(): number {
    return this.#origins.size;
  }

  /**
   * Sends a request as soon as a connection is free. Returns a function that takes the request back while it
   * waits for a connection. Throws `PoolClosed`.
   */
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

  /** Closes all connections. Requests that are running or waiting fail. */
  close(): void {
    this.#isClosed = true;
    this.#cancelTick?.();
    for (const origin of [...this.#origins.values()]) origin.close();
    this.#origins.clear();
  }

  /** Ages the idle connections once a second while there are any. */
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

/** The connections to one origin, and the requests that wait for one. */
class Origin {
  readonly #target: buildConnector.Options;
  readonly #options: ConnectionPoolOptions;
  readonly #owner: OriginOwner;
  readonly #open = new Set<HttpConnection>();
  /** Idle connections. The most recently used one is taken first, so that unneeded ones expire. */
  #idle: HttpConnection[] = [];
  /**
   * Connections whose last response ended in this turn of the event loop, or (`#settling`) in the one before.
   */
  #justUsed: HttpConnection[] = [];
  #settling: HttpConnection[] = [];
  readonly #waiting = new Set<RequestCaller>();
  /** Requests whose reused connection ended. Each is resent once, over a new connection. */
  readonly #resending = new Set<RequestCaller>();
  readonly #attempts = new Set<ConnectionAttempt>();
  /** The account of the latest request, for which a new connection is opened. */
  #lastAccount = "";
  #isCheckScheduled = false;
  #isClosed = false;

  constructor(
    { hostname, host, protocol, port }: ParsedUrl,
    options: ConnectionPoolOptions,
    owner: OriginOwner,
  ) {
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

  /**
   * Gives up the attempt that has been opening longest if no request needs it. Such an attempt may never
   * open, and it occupies a socket.
   */
  #abandonExcess(): void {
    if (this.#isClosed || this.#attempts.size <= this.#missingConnections) return;
    const abandoned = [...this.#attempts].find((attempt) => attempt.abandon());
    if (abandoned) this.#attempts.delete(abandoned);
    this.#openMore();
  }

  /** Called once a second. Closes expired connections and returns how many are still unused. */
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

  /**
   * Resends a request whose connection ended, over a new connection. Also closes the idle connections. They
   * have been idle for longer than the connection that ended, because the most recently used one is taken
   * first.
   */
  #resend(caller: RequestCaller): void {
    if (this.#isClosed) return caller.onFailure(new PoolClosed());
    const isResent = caller.mayResend?.() ?? true;
    if (isResent) this.#resending.add(caller);
    for (const connection of [...this.#idle]) connection.close(null);
    if (!isResent) caller.onFailure(new ConnectionLost());
  }

  /**
   * Schedules the reuse of connections after Node has read from them again. Without this second read, the
   * next attempt would fail if the destination has silently closed the connection. Also, unrequested bytes
   * would be taken for the next response. One immediate runs after the read in which the response ended, and
   * a second one after the next read.
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

  /**
   * The number of requests that need a connection which is not open yet. Reused connections serve waiting
   * requests, but never requests that are resent.
   */
  get #missingConnections(): number {
    const reusable = this.#idle.length + this.#justUsed.length + this.#settling.length;
    return this.#resending.size + Math.max(0, this.#waiting.size - reusable);
  }

  /**
   * Returns the request that a new connection serves first. Resent requests come first, because they have
   * used up some of their time and reused connections never serve them.
   */
  #takeNext(): RequestCaller | undefined {
    return takeFirst(this.#resending) ?? takeFirst(this.#waiting);
  }

  #openMore(): void {
    while (
      this.#attempts.size < this.#missingConnections &&
      this.#attempts.size + this.#open.size < this.#options.perOrigin
    )
      this.#connect();
    if (this.#attempts.size + this.#open.size === 0) this.#owner.onEmpty();
  }

  #connect(): void {
    const attempt = new ConnectionAttempt({
      target: this.#target,
      sockets: this.#owner.sockets,
      connector: (target, answered) =>
        resolvingAccount.run(this.#lastAccount, () => this.#options.connector(target, answered)),
      isWanted: () => this.#waiting.size + this.#resending.size > 0,
      onOpened: (socket, opening) => {
        this.#attempts.delete(attempt);
        this.#handleOpened(socket, opening);
      },
      onFailed: (error) => {
        this.#attempts.delete(attempt);
        this.#handleFailed(error);
      },
    });
    this.#attempts.add(attempt);
    attempt.begin();
  }

  #handleOpened(socket: Socket, opening: OpeningTiming | null): void {
    if (this.#isClosed) {
      this.#owner.sockets.release();
      return void socket.destroy();
    }
    const { longWork } = this.#options;
    const host = this.#target.host ?? "";
    const connection = new HttpConnection(socket, { host, owner: this, longWork, opening });
    this.#open.add(connection);
    const next = this.#takeNext();
    if (next) connection.send(next);
    else this.onFree(connection);
  }

  /**
   * Fails the request that has waited longest, unless there are connections for all. The other requests keep
   * waiting, and a new connection is tried for each.
   */
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
