import type { Client, Notification } from "pg";
import type { Millis, NodeId } from "../../core/model/message.ts";
import type { DatabaseConnection } from "../sql/database.ts";
import { isReplaced, isSchemaKnown, replacedSchema } from "../sql/schema.ts";
import type { NodeSession } from "../../core/nodes/takeover.ts";
import type { NodeSessionLease } from "./sessionLease.ts";
import type { DatabaseLocation, PostgresOptions } from "./session.ts";
import { readSqlState, connect, createConnection, cutConnection } from "./session.ts";
import { whileHostAnswers } from "./hostProbe.ts";
import { readNextDueAt } from "../sql/reads.ts";
import { Unavailable } from "../store.ts";

/** Where nodes tell each other what became due: `<node> <time of the database>`. */
const channel = "waypost_due";

/** Where they tell each other that accounts were changed: `<node>`. */
const accountChannel = "waypost_accounts";

/** How often a listening node asks what is due. This also finds a lost connection, replaced tables, and what a node that ended did not announce. */
const checkInterval: Millis = 30_000;
/** So often a node looks that cannot listen. */
const pollInterval: Millis = 1_000;
/** If a look at the other nodes takes longer than this while another connection answers, its connection and the lock on it may be gone. */
const checkTimeout: Millis = 300;
/** So long an end in order waits for the database. */
const endTimeout: Millis = 1_000;
/** Between two tries to connect again, at least and at most. */
const minPause: Millis = 100;
const maxPause: Millis = 5_000;

export type PeerChannel = {
  /** Sets who is told the times that other nodes tell of. */
  onDue(listener: (at: Millis) => void): void;
  /** Sets who is told that accounts were changed. */
  onAccountsChanged(listener: () => void): void;
  /** Tells the others when something that this node has stored is due. Does not wait until they were told. */
  notifyDue(dueAt: Millis, now: Millis): void;
  notifyAccountsChanged(): Promise<void>;
  close(): Promise<void>;
};

/** `connection`: one to read with, for a node that cannot listen, or can no longer. */
type ListenerOptions = DatabaseLocation &
  Pick<PostgresOptions, "node" | "clock" | "onOutdated"> & { connection: DatabaseConnection; takeover: TakeoverOptions };

/** `takeOver` is called with each node whose leases end early. */
type TakeoverOptions = { sessionLease: NodeSessionLease; takeOver(session: NodeSession): Promise<void> };

/** Hears of the other nodes, by listening where the database and the way to it allow that, else by looking every second. */
export async function openPeerChannel(options: ListenerOptions): Promise<PeerChannel> {
  if (options.pooling === "transaction") return startPolling(options);
  return startListener(options).catch((error: unknown) => {
    if (isListenRefused(error)) return startPolling(options);
    throw error;
  });
}

/** There is no such thing, the user may not, or it is not even understood: by the database, or by what stands before it. */
const listenRefusalCodes: ReadonlySet<string> = new Set(["0A000", "42501", "42601"]);
const isListenRefused = (error: unknown): boolean => listenRefusalCodes.has(readSqlState(error) ?? "");

async function startListener(options: ListenerOptions): Promise<PeerChannel> {
  const listener = new PeerListener(options);
  await listener.begin();
  return listener;
}

/**
 * Listens to the other nodes on a connection of its own, and connects again for as long as it takes. Whatever was said
 * meanwhile is lost, so then it tells of time 0: that there may be something to do now. Where it is refused then what it was
 * allowed at first (a pooler, or another database, answers under the same name now), it looks every second from there on.
 */
class PeerListener implements PeerChannel {
  readonly #options: ListenerOptions;
  readonly #notifier: DueNotifier;
  readonly #end = new AbortController();
  #dueListener: (at: Millis) => void = () => undefined;
  #accountsListener: () => void = () => undefined;
  #client: Client | null = null;
  #polling: PeerChannel | null = null;
  /** Whether this database has holds, as far as is known. */
  #hasSessionLeases = true;
  readonly #takingOver = new Set<string>();
  #keeping: Promise<void> = Promise.resolve();

  constructor(options: ListenerOptions) {
    this.#options = options;
    this.#notifier = new DueNotifier((at) => this.#notify(channel, `${options.node} ${at}`));
  }

  async begin(): Promise<void> {
    const client = await this.#connect();
    this.#keeping = this.#keepConnected(client);
  }

  onDue(listener: (at: Millis) => void): void {
    this.#dueListener = listener;
  }

  onAccountsChanged(listener: () => void): void {
    this.#accountsListener = listener;
  }

  notifyDue(dueAt: Millis, now: Millis): void {
    (this.#polling ?? this.#notifier).notifyDue(dueAt, now);
  }

  async notifyAccountsChanged(): Promise<void> {
    await (this.#polling?.notifyAccountsChanged() ?? this.#notify(accountChannel, this.#options.node));
  }

  async close(): Promise<void> {
    await this.#withTimeout(endTimeout, this.#options.takeover.sessionLease.end(this.#options.connection));
    this.#end.abort();
    // What is still unanswered here does not matter, so closing does not wait for it.
    if (this.#client) cutConnection(this.#client);
    await this.#keeping;
    await this.#polling?.close();
  }

  async #notify(channelName: string, payload: string): Promise<void> {
    await this.#client?.query("select pg_notify($1, $2)", [channelName, payload]);
  }

  async #keepConnected(first: Client): Promise<void> {
    for (let client: Client | null = first; client && !this.#end.signal.aborted; client = await this.#reconnect()) {
      await this.#untilLost(client);
      if (this.#end.signal.aborted) return;
      cutConnection(client);
    }
    if (!this.#end.signal.aborted) this.#pollInstead();
  }

  /** Ends when the connection is lost, or the listener is closed. */
  async #untilLost(client: Client): Promise<void> {
    const { clock } = this.#options;
    const wake = new AbortController();
    const onLost = (): void => wake.abort();
    const pause = (time: Millis, until: AbortSignal): Promise<void> => clock.sleep(clock.now() + time, until);
    const connection = createConnection((query) => client.query(query));
    client.once("end", onLost);
    this.#end.signal.addEventListener("abort", onLost);
    const watching = this.#watchNodes(client, wake);
    while (!wake.signal.aborted) {
      await clock.sleep(clock.now() + checkInterval, wake.signal);
      if (!wake.signal.aborted)
        await whileHostAnswers(this.#checkDue(connection), { client, location: this.#options, pause }).catch(onLost);
    }
    this.#end.signal.removeEventListener("abort", onLost);
    await watching;
  }

  /** Looks which other nodes are there. A connection that does not answer is given up, and the hold with it. */
  async #watchNodes(client: Client, lost: AbortController): Promise<void> {
    const { clock, takeover } = this.#options;
    const connection = createConnection((query) => client.query(query));
    while (this.#hasSessionLeases && !lost.signal.aborted) {
      await clock.sleep(clock.now() + takeover.sessionLease.nextCheckDelay(), lost.signal);
      if (lost.signal.aborted) return;
      const checking = takeover.sessionLease.checkOtherNodes(connection).catch(() => null);
      const gone =
        (await this.#withTimeout(checkTimeout, checking)) ??
        (await Promise.race([checking, this.#untilOtherConnectionAnswers(lost.signal)]));
      for (const session of gone ?? []) void this.#takeOver(session);
      if (gone !== null || lost.signal.aborted) continue;
      takeover.sessionLease.loseUnresponsive(client);
      lost.abort();
    }
  }

  /** Returns null when the database has answered on another connection, or when it does not matter any more. */
  async #untilOtherConnectionAnswers(end: AbortSignal): Promise<null> {
    const { clock, connection } = this.#options;
    while (!end.aborted) {
      const answers = await connection.query("select 1 as one", []).then(
        () => true,
        () => false,
      );
      if (answers) break;
      await clock.sleep(clock.now() + checkTimeout, end);
    }
    // An answer to the look that came in before this one counts.
    return new Promise((resolve) => setImmediate(resolve, null));
  }

  /** One at a time of each session. Those of several may wait for the storage at the same time, and no look waits for any of them. */
  async #takeOver(session: NodeSession): Promise<void> {
    const { sessionLease, takeOver } = this.#options.takeover;
    const name = `${session.node} ${session.session}`;
    if (this.#takingOver.has(name)) return;
    this.#takingOver.add(name);
    // If it fails, the session is still gone at the next look.
    await takeOver(session).then(
      () => {
        sessionLease.recordTakeover(session);
        // What the node gave back itself, nobody was told of.
        this.#dueListener(0);
      },
      () => undefined,
    );
    this.#takingOver.delete(name);
  }

  /** Returns the answer; null if it fails, or takes longer than this. */
  async #withTimeout<T>(time: Millis, result: Promise<T>): Promise<T | null> {
    const { clock } = this.#options;
    const finished = new AbortController();
    // What has come in while this process stood still counts.
    const timeout = clock
      .sleep(clock.now() + time, finished.signal)
      .then(() => new Promise<null>((resolve) => setImmediate(resolve, null)));
    try {
      return await Promise.race([result.catch(() => null), timeout]);
    } finally {
      finished.abort();
    }
  }

  async #checkDue(connection: DatabaseConnection): Promise<void> {
    if (await isSchemaReplaced(connection)) return this.#options.onOutdated?.(replacedSchema);
    const at = await readNextDueAt(connection);
    if (at !== null) this.#dueListener(at);
  }

  /** Null: it may not listen there any more, or is closed. */
  async #reconnect(): Promise<Client | null> {
    const { clock } = this.#options;
    for (let pause = minPause; !this.#end.signal.aborted; pause = Math.min(2 * pause, maxPause)) {
      try {
        const client = await this.#connect();
        this.#notifyAll();
        this.#notifier.repeat();
        return client;
      } catch (error) {
        if (isListenRefused(error)) return null;
        await clock.sleep(clock.now() + pause, this.#end.signal);
      }
    }
    return null;
  }

  async #connect(): Promise<Client> {
    const client = (this.#client = await connectListener(this.#options, (notification) => this.#handleNotification(notification)));
    await this.#takeSessionLease(client);
    return client;
  }

  /** A database that refuses a part of it has no holds: leases run out by time then. */
  async #takeSessionLease(client: Client): Promise<void> {
    if (!this.#hasSessionLeases) return;
    try {
      await this.#options.takeover.sessionLease.take(client);
    } catch (error) {
      if (error instanceof Unavailable) {
        cutConnection(client);
        throw error;
      }
      this.#hasSessionLeases = false;
      void this.#abandonSessionLease();
    }
  }

  #handleNotification({ channel: channelName, payload = "" }: Notification): void {
    const { node } = this.#options;
    if (channelName === accountChannel) return payload === node ? undefined : this.#accountsListener();
    const at = parseDueAt(payload, node);
    if (at !== null) this.#dueListener(at);
  }

  async #abandonSessionLease(): Promise<void> {
    const { clock, connection, takeover } = this.#options;
    while (!this.#end.signal.aborted) {
      try {
        return await takeover.sessionLease.abandon(connection);
      } catch {
        await clock.sleep(clock.now() + pollInterval, this.#end.signal);
      }
    }
  }

  #notifyAll(): void {
    this.#accountsListener();
    this.#dueListener(0);
  }

  #pollInstead(): void {
    this.#hasSessionLeases = false;
    void this.#abandonSessionLease();
    this.#polling = startPolling(this.#options);
    this.#polling.onDue((at) => this.#dueListener(at));
    this.#polling.onAccountsChanged(() => this.#accountsListener());
    this.#notifyAll();
  }
}

/**
 * The commits of all nodes that notify wait for each other, so it is done beside the batches and not in them, and no more than
 * is needed: one at a time, and none for what the others see anyhow. They have all been told to look at some time that is still to
 * come; then they see whatever is due later. So a thousand leases a second are told of once in the time of a lease.
 */
class DueNotifier {
  readonly #notify: (at: Millis) => Promise<void>;
  /** When the others look, as far as they were told by this node. */
  #notifiedFor: Millis | null = null;
  #next: Millis | null = null;
  #isSending = false;

  constructor(notify: (at: Millis) => Promise<void>) {
    this.#notify = notify;
  }

  notifyDue(dueAt: Millis, now: Millis): void {
    if (this.#notifiedFor !== null && now < this.#notifiedFor && this.#notifiedFor <= dueAt) return;
    this.#notifiedFor = dueAt;
    this.#next = Math.min(this.#next ?? Infinity, dueAt);
    if (!this.#isSending) void this.#send();
  }

  /** The connection is new. What was lost with the old one is not known, so they are told to look now. */
  repeat(): void {
    if (this.#notifiedFor === null) return;
    this.#notifiedFor = null;
    this.notifyDue(0, 0);
  }

  async #send(): Promise<void> {
    this.#isSending = true;
    try {
      for (let at = this.#next; at !== null; at = this.#next) {
        this.#next = null;
        await this.#notify(at);
      }
    } catch {
      // The connection is lost: `again` follows.
    }
    this.#isSending = false;
  }
}

/** Reports whether the tables are no longer those that this node created. */
async function isSchemaReplaced({ query }: DatabaseConnection): Promise<boolean> {
  const [row] = await query(`select ${isSchemaKnown("postgres")}`, []);
  return isReplaced(row);
}

/** Asks what is due, every second, and takes it that accounts may have been changed. Tells the others nothing: they do the same. */
function startPolling({ clock, connection, onOutdated }: ListenerOptions): PeerChannel {
  const end = new AbortController();
  let dueListener: (at: Millis) => void = () => undefined;
  let accountsListener: () => void = () => undefined;
  let checkedAt = -Infinity;
  const check = async (): Promise<void> => {
    if (clock.now() - checkedAt >= checkInterval) {
      if (await isSchemaReplaced(connection)) return onOutdated?.(replacedSchema);
      checkedAt = clock.now();
    }
    const at = await readNextDueAt(connection);
    // While nobody answers, nothing is known of accounts that was not known before.
    accountsListener();
    if (at !== null) dueListener(at);
  };
  const keepPolling = async (): Promise<void> => {
    while (!end.signal.aborted) {
      await clock.sleep(clock.now() + pollInterval, end.signal);
      // Without a database there is nothing to do; the next look follows.
      if (!end.signal.aborted) await check().catch(() => undefined);
    }
  };
  const polling = keepPolling();
  return {
    onDue: (listener) => void (dueListener = listener),
    onAccountsChanged: (listener) => void (accountsListener = listener),
    notifyDue: () => undefined,
    notifyAccountsChanged: async () => undefined,
    close: async () => {
      end.abort();
      await polling;
    },
  };
}

async function connectListener(location: DatabaseLocation, onNotification: (notification: Notification) => void): Promise<Client> {
  const client = await connect(location, { kind: "listener" });
  client.on("notification", onNotification);
  try {
    // Whoever is told looks for itself, so nothing is lost with a notification that was not on the disk.
    await client.query(`listen ${channel}; listen ${accountChannel}; set synchronous_commit = off`);
    return client;
  } catch (error) {
    await client.end().catch(() => undefined);
    throw error;
  }
}

/** Null: this node's own, or not in our words. */
function parseDueAt(payload: string, node: NodeId): Millis | null {
  const [from, at] = payload.split(" ");
  return from === node || !at || !/^\d{1,15}$/.test(at) ? null : Number(at);
}
