import type { Socket } from "node:net";
import type { buildConnector } from "undici";
import type { LongWork } from "../../core/fairness/longWork.ts";
import type { ParsedUrl } from "../../core/values/url.ts";
import { alarm } from "../../clock/clock.ts";
import { Connection, type Caller } from "./connection.ts";
import { openedFor } from "./dns.ts";
import { Opening } from "./opening.ts";
import { Sockets } from "./sockets.ts";

export type ConnectionsOptions = {
  connector: buildConnector.connector;
  /** How many there may be to one origin. */
  perOrigin: number;
  longWork: LongWork;
  /** How many there may be to all origins, those that are being opened included. Absent: as many as are needed. */
  inAll?: number;
};

/** Why a request was not sent: the connections are closed. */
export class Closed extends Error {}

/**
 * The connections of this node: to each origin (`https://shop.example:8443`) as many as are needed, up to a limit. An origin is forgotten
 * with its last connection, however many there are in a lifetime.
 */
export class Connections {
  readonly #options: ConnectionsOptions;
  readonly #sockets: Sockets;
  readonly #origins = new Map<string, Origin>();
  #silence: (() => void) | null = null;
  #isClosed = false;

  constructor(options: ConnectionsOptions) {
    this.#options = options;
    this.#sockets = new Sockets(options.inAll ?? Infinity);
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
  send(url: ParsedUrl, caller: Caller): () => void {
    if (this.#isClosed) throw new Closed();
    const { origin: name } = url;
    let origin = this.#origins.get(name);
    if (origin === undefined) {
      origin = new Origin(url, this.#options, {
        ...{ idle: () => this.#watch(), empty: () => void this.#origins.delete(name), sockets: this.#sockets },
      });
      this.#origins.set(name, origin);
    }
    return origin.send(caller);
  }

  /** Cuts all of them; what runs on them, or waits for them, ends with an error. */
  close(): void {
    this.#isClosed = true;
    this.#silence?.();
    for (const origin of [...this.#origins.values()]) origin.close();
    this.#origins.clear();
  }

  /** While any is idle, the time goes by for them. */
  #watch(): void {
    if (this.#silence !== null || this.#isClosed) return;
    this.#silence = alarm(1_000, () => {
      this.#silence = null;
      let left = 0;
      for (const origin of [...this.#origins.values()]) left += origin.tick();
      if (left > 0) this.#watch();
    });
  }
}

type Watcher = { idle(): void; empty(): void; sockets: Sockets };

/** Connections to one origin, and what waits for one. */
class Origin {
  readonly #target: buildConnector.Options;
  readonly #options: ConnectionsOptions;
  readonly #watcher: Watcher;
  readonly #open = new Set<Connection>();
  /** The one that was used last goes first, so that those which are not needed grow old. */
  #idle: Connection[] = [];
  /** An answer has ended on them in this turn of the event loop, or in the one before it. */
  #used: Connection[] = [];
  #resting: Connection[] = [];
  readonly #waiting = new Set<Caller>();
  /** Requests that met the end of a reused connection. Each is resent once, over a new connection. */
  readonly #unheard = new Set<Caller>();
  readonly #openings = new Set<Opening>();
  /** The account whose request came last, and so the one for which a connection is opened. */
  #account = "";
  #willLook = false;
  #isClosed = false;

  constructor({ hostname, host, protocol, port }: ParsedUrl, options: ConnectionsOptions, watcher: Watcher) {
    this.#target = { hostname: hostname.replace(/^\[|\]$/g, ""), host, protocol, port };
    this.#options = options;
    this.#watcher = watcher;
  }

  send(caller: Caller): () => void {
    const connection = this.#idle.pop();
    if (connection) {
      this.#watcher.sockets.busy(connection);
      connection.send(caller);
    } else {
      this.#waiting.add(caller);
      this.#account = caller.account ?? "";
      this.#openMore();
    }
    return () => {
      if (this.#waiting.delete(caller) || this.#unheard.delete(caller)) this.#cutExcess();
    };
  }

  /** Nobody waits any longer for the connection that has been opening for longest: it may never open, and keeps a socket meanwhile. */
  #cutExcess(): void {
    if (this.#isClosed || this.#openings.size <= this.#unserved) return;
    const cut = [...this.#openings].find((opening) => opening.cut());
    if (cut) this.#openings.delete(cut);
    this.#openMore();
  }

  /** A second went by. Answers how many are not in use still. */
  tick(): number {
    const old = this.#idle.filter((connection) => --connection.seconds <= 0);
    if (old.length > 0) this.#idle = this.#idle.filter((connection) => connection.seconds > 0);
    for (const connection of old) connection.close(null);
    return this.#idle.length + this.#used.length + this.#resting.length;
  }

  close(): void {
    this.#isClosed = true;
    const waiting = [...this.#waiting, ...this.#unheard];
    this.#waiting.clear();
    this.#unheard.clear();
    this.#idle = [];
    this.#used = [];
    this.#resting = [];
    for (const opening of [...this.#openings]) if (opening.cut()) this.#openings.delete(opening);
    for (const caller of waiting) caller.fails(new Closed());
    for (const connection of [...this.#open]) connection.close(new Closed());
  }

  free(connection: Connection): void {
    this.#used.push(connection);
    this.#watcher.idle();
    this.#lookSoon();
  }

  gone(connection: Connection, unheard: Caller | null): void {
    if (this.#open.delete(connection)) this.#watcher.sockets.give();
    this.#watcher.sockets.busy(connection);
    remove(connection, this.#idle);
    remove(connection, this.#used);
    remove(connection, this.#resting);
    if (unheard) this.#resend(unheard);
    this.#openMore();
  }

  /** Also closes the idle connections: they have been idle for longer, because the most recently used one is taken first. */
  #resend(unheard: Caller): void {
    if (this.#isClosed) return unheard.fails(new Closed());
    this.#unheard.add(unheard);
    for (const connection of [...this.#idle]) connection.close(null);
  }

  /**
   * No connection is used again before Node has looked once more at what came in on it: a destination that closes it without a word
   * would cost the next request its attempt, and bytes that nobody asked for would be taken for its answer. An immediate comes after
   * the look in which the answer ended, and a second one after the next.
   */
  #lookSoon(): void {
    if (this.#willLook) return;
    this.#willLook = true;
    setImmediate(() => {
      this.#willLook = false;
      const looked = this.#resting;
      this.#resting = this.#used;
      this.#used = [];
      const before = this.#idle.length;
      this.#idle.push(...looked);
      while (this.#idle.length > 0) {
        const next = takeFirst(this.#waiting);
        if (!next) break;
        const connection = this.#idle.pop();
        if (connection) this.#watcher.sockets.busy(connection);
        connection?.send(next);
      }
      for (const connection of this.#idle.slice(before)) this.#watcher.sockets.idle(connection);
      if (this.#resting.length + this.#used.length > 0) this.#lookSoon();
    });
  }

  /** How many requests need a connection that is not open yet. Reused connections serve those that wait, and none that is resent. */
  get #unserved(): number {
    const reusable = this.#idle.length + this.#used.length + this.#resting.length;
    return this.#unheard.size + Math.max(0, this.#waiting.size - reusable);
  }

  /** The request that a new connection serves first. A resent one has used up some of its time, and no other connection serves it. */
  #takeNext(): Caller | undefined {
    return takeFirst(this.#unheard) ?? takeFirst(this.#waiting);
  }

  #openMore(): void {
    while (this.#openings.size < this.#unserved && this.#openings.size + this.#open.size < this.#options.perOrigin) this.#connect();
    if (this.#openings.size + this.#open.size === 0) this.#watcher.empty();
  }

  #connect(): void {
    const opening = new Opening({
      ...{ target: this.#target, sockets: this.#watcher.sockets },
      connector: (target, answered) => openedFor.run(this.#account, () => this.#options.connector(target, answered)),
      isWanted: () => this.#waiting.size + this.#unheard.size > 0,
      opened: (socket) => {
        this.#openings.delete(opening);
        this.#opened(socket);
      },
      failed: (error) => {
        this.#openings.delete(opening);
        this.#failed(error);
      },
    });
    this.#openings.add(opening);
    opening.begin();
  }

  #opened(socket: Socket): void {
    if (this.#isClosed) {
      this.#watcher.sockets.give();
      return void socket.destroy();
    }
    const { longWork } = this.#options;
    const connection = new Connection(socket, { host: this.#target.host ?? "", owner: this, longWork });
    this.#open.add(connection);
    const next = this.#takeNext();
    if (next) connection.send(next);
    else this.free(connection);
  }

  /** Told to the one that waits for longest, unless there is one for each. For each of the others another one is tried. */
  #failed(error: unknown): void {
    if (this.#unserved > 0) this.#takeNext()?.fails(error);
    this.#openMore();
  }
}

function takeFirst(callers: Set<Caller>): Caller | undefined {
  const [first] = callers;
  if (first) callers.delete(first);
  return first;
}

function remove(connection: Connection, list: Connection[]): void {
  const at = list.indexOf(connection);
  if (at >= 0) list.splice(at, 1);
}
