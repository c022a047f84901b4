import type { Client, Notification } from "pg";
import type { Millis, NodeId } from "../../core/values/basics.ts";
import type { DatabaseConnection } from "../sql/database.ts";
import { isReplaced, isSchemaKnown, replacedSchema } from "../sql/schema.ts";
import type { NodeMembership } from "../../core/cluster/takeover.ts";
import type { PostgresMembership } from "./membership.ts";
import type { DatabaseLocation, PostgresOptions } from "./connect.ts";
import { readSqlState } from "./databaseErrors.ts";
import { connect, cutConnection } from "./connect.ts";
import { createConnection } from "./connection.ts";
import { DueNotifier } from "./dueNotifier.ts";
import { whileHostAnswers } from "./hostProbe.ts";
import { readNextDueAt } from "../sql/reads.ts";
import { Unavailable } from "../layout/storageErrors.ts";

/** The channel on which nodes announce due times. The payload is `<node> <time of the database>`. */
const channel = "waypost_due";

/** The channel on which nodes announce that accounts have changed. The payload is `<node>`. */
const accountChannel = "waypost_accounts";

/**
 * The channel on which a node announces that it has ended deliveries in flight of other nodes. The payload is
 * `<node>`.
 */
const leaseChannel = "waypost_leases";

/**
 * How often a listening node reads the next due time. This also finds a lost connection, replaced tables, and
 * due messages that a stopped node did not announce.
 */
const checkInterval: Millis = 30_000;
/** How often a node reads the next due time if it cannot listen. */
const pollInterval: Millis = 1_000;
/**
 * If a check of the other nodes takes longer than this while another connection answers, this connection and
 * its lock may be lost.
 */
const checkTimeout: Millis = 300;
/** How long an orderly shutdown waits for the database. */
const endTimeout: Millis = 1_000;
/** The shortest and the longest pause between two tries to reconnect. */
const minPause: Millis = 100;
const maxPause: Millis = 5_000;

/** Announcements between nodes: due times, changes of accounts, and ended deliveries. */
export type PeerChannel = {
  /** Sets the listener for due times that other nodes announce. */
  onDue(listener: (at: Millis) => void): void;
  /** Sets the listener for changes of accounts. */
  onAccountsChanged(listener: () => void): void;
  /** Announces that this node has stored something due at `dueAt`. Does not wait for the announcement. */
  notifyDue(dueAt: Millis, now: Millis): void;
  /** Announces that this node has changed accounts. */
  notifyAccountsChanged(): Promise<void>;
  /** Sets the listener for deliveries of this node that another node may have ended. */
  onLeasesEnded(listener: () => void): void;
  /** Announces that this node has ended deliveries of other nodes. Does not wait for the announcement. */
  notifyLeasesEnded(): void;
  close(): Promise<void>;
};

/** `connection` is a separate connection for reads. A node that cannot listen polls with it. */
type ListenerOptions = DatabaseLocation &
  Pick<PostgresOptions, "node" | "clock" | "onOutdated"> & {
    connection: DatabaseConnection;
    takeover: TakeoverOptions;
  };

/** `takeOver` is called with each membership whose leases end early. */
type TakeoverOptions = { membership: PostgresMembership; takeOver(lost: NodeMembership): Promise<void> };

/**
 * Opens the channel to the other nodes. It listens if the database and the connection allow `listen`;
 * otherwise it polls every second.
 */
export async function openPeerChannel(options: ListenerOptions): Promise<PeerChannel> {
  if (options.pooling === "transaction") return startPolling(options);
  return startListener(options).catch((error: unknown) => {
    if (isListenRefused(error)) return startPolling(options);
    throw error;
  });
}

/**
 * The SQLSTATEs of a refused `listen`: not supported, not permitted, or not understood, by the database or by
 * a pooler in front of it.
 */
const listenRefusalCodes: ReadonlySet<string> = new Set(["0A000", "42501", "42601"]);
const isListenRefused = (error: unknown): boolean => listenRefusalCodes.has(readSqlState(error) ?? "");

async function startListener(options: ListenerOptions): Promise<PeerChannel> {
  const listener = new PeerListener(options);
  await listener.begin();
  return listener;
}

/**
 * Listens to the other nodes on its own connection, and reconnects until it succeeds. Announcements made
 * while it was disconnected are lost, so after a reconnect it reports the due time 0: something may be due
 * now. If listening is refused after a reconnect (because a pooler or another database now has the same
 * name), the node polls every second from then on.
 */
class PeerListener implements PeerChannel {
  readonly #options: ListenerOptions;
  readonly #notifier: DueNotifier;
  readonly #end = new AbortController();
  #dueListener: (at: Millis) => void = () => undefined;
  #accountsListener: () => void = () => undefined;
  #leasesListener: () => void = () => undefined;
  #client: Client | null = null;
  #polling: PeerChannel | null = null;
  /** Whether this database supports memberships, as far as is known. */
  #hasMemberships = true;
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

  onLeasesEnded(listener: () => void): void {
    this.#leasesListener = listener;
  }

  notifyLeasesEnded(): void {
    // If the announcement is lost, the other node learns of it when it renews its leases.
    void this.#notify(leaseChannel, this.#options.node).catch(() => undefined);
  }

  async close(): Promise<void> {
    await this.#withTimeout(endTimeout, this.#options.takeover.membership.end(this.#options.connection));
    this.#end.abort();
    // Closing does not wait for unanswered statements, because their results no longer matter.
    if (this.#client) cutConnection(this.#client);
    await this.#keeping;
    await this.#polling?.close();
  }

  async #notify(channelName: string, payload: string): Promise<void> {
    await this.#client?.query("select pg_notify($1, $2)", [channelName, payload]);
  }

  async #keepConnected(first: Client): Promise<void> {
    for (
      let client: Client | null = first;
      client && !this.#end.signal.aborted;
      client = await this.#reconnect()
    ) {
      await this.#untilLost(client);
      if (this.#end.signal.aborted) return;
      cutConnection(client);
    }
    if (!this.#end.signal.aborted) this.#pollInstead();
  }

  /** Returns when the connection is lost or the listener is closed. */
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
        await whileHostAnswers(this.#checkDue(connection), { client, location: this.#options, pause }).catch(
          onLost,
        );
    }
    this.#end.signal.removeEventListener("abort", onLost);
    await watching;
  }

  /**
   * Observes the memberships of the other nodes. If this connection does not answer while another connection
   * does, it is given up together with its membership.
   */
  async #watchNodes(client: Client, lost: AbortController): Promise<void> {
    const { clock, takeover } = this.#options;
    const connection = createConnection((query) => client.query(query));
    while (this.#hasMemberships && !lost.signal.aborted) {
      await clock.sleep(clock.now() + takeover.membership.nextCheckDelay(), lost.signal);
      if (lost.signal.aborted) return;
      const checking = takeover.membership.checkOtherNodes(connection).catch(() => null);
      const gone =
        (await this.#withTimeout(checkTimeout, checking)) ??
        (await Promise.race([checking, this.#untilOtherConnectionAnswers(lost.signal)]));
      for (const lost of gone ?? []) void this.#takeOver(lost);
      if (gone !== null || lost.signal.aborted) continue;
      takeover.membership.loseUnresponsive(client);
      lost.abort();
    }
  }

  /**
   * Returns null when the database has answered on another connection, or when the answer no longer matters.
   */
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
    // If the check is answered at the same time, its answer is used.
    return new Promise((resolve) => setImmediate(resolve, null));
  }

  /**
   * Takes over one membership. A membership is not taken over twice at the same time. Several memberships may
   * be taken over at once, and checks of the other nodes do not wait for that.
   */
  async #takeOver(lost: NodeMembership): Promise<void> {
    const { membership, takeOver } = this.#options.takeover;
    const name = `${lost.node} ${lost.membership}`;
    if (this.#takingOver.has(name)) return;
    this.#takingOver.add(name);
    // If the takeover fails, the next check finds the membership gone again.
    await takeOver(lost).then(
      () => {
        membership.recordTakeover(lost);
        // The lost node may have returned messages without announcing them.
        this.#dueListener(0);
      },
      () => undefined,
    );
    this.#takingOver.delete(name);
  }

  /** Returns the result, or null if it fails or takes longer than `time`. */
  async #withTimeout<T>(time: Millis, result: Promise<T>): Promise<T | null> {
    const { clock } = this.#options;
    const finished = new AbortController();
    // If the answer arrived while this process was paused, it is still used.
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

  /** Reconnects. Returns null if this node may no longer listen, or is closed. */
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
    const client = (this.#client = await connectListener(this.#options, (notification) =>
      this.#handleNotification(notification),
    ));
    await this.#takeMembership(client);
    return client;
  }

  /** Takes the membership. If the database refuses it, leases end only at their due time. */
  async #takeMembership(client: Client): Promise<void> {
    if (!this.#hasMemberships) return;
    try {
      await this.#options.takeover.membership.take(client);
    } catch (error) {
      if (error instanceof Unavailable) {
        cutConnection(client);
        throw error;
      }
      this.#hasMemberships = false;
      void this.#abandonMembership();
    }
  }

  #handleNotification({ channel: channelName, payload = "" }: Notification): void {
    const { node } = this.#options;
    if (channelName === accountChannel) return payload === node ? undefined : this.#accountsListener();
    if (channelName === leaseChannel) return payload === node ? undefined : this.#leasesListener();
    const at = parseDueAt(payload, node);
    if (at !== null) this.#dueListener(at);
  }

  async #abandonMembership(): Promise<void> {
    const { clock, connection, takeover } = this.#options;
    while (!this.#end.signal.aborted) {
      try {
        return await takeover.membership.abandon(connection);
      } catch {
        await clock.sleep(clock.now() + pollInterval, this.#end.signal);
      }
    }
  }

  #notifyAll(): void {
    this.#accountsListener();
    this.#leasesListener();
    this.#dueListener(0);
  }

  #pollInstead(): void {
    this.#hasMemberships = false;
    void this.#abandonMembership();
    this.#polling = startPolling(this.#options);
    this.#polling.onDue((at) => this.#dueListener(at));
    this.#polling.onAccountsChanged(() => this.#accountsListener());
    this.#polling.onLeasesEnded(() => this.#leasesListener());
    this.#notifyAll();
  }
}

/** Reports whether the tables have been replaced by those of another version. */
async function isSchemaReplaced({ query }: DatabaseConnection): Promise<boolean> {
  const [row] = await query(`select ${isSchemaKnown("postgres")}`, []);
  return isReplaced(row);
}

/**
 * Reads the next due time every second, and whether deliveries of this node were ended. It assumes that
 * accounts may have changed. Announces nothing, because the other nodes poll too.
 */
function startPolling({ clock, connection, onOutdated, node }: ListenerOptions): PeerChannel {
  const end = new AbortController();
  let dueListener: (at: Millis) => void = () => undefined;
  let accountsListener: () => void = () => undefined;
  let leasesListener: () => void = () => undefined;
  let checkedAt = -Infinity;
  const check = async (): Promise<void> => {
    if (clock.now() - checkedAt >= checkInterval) {
      if (await isSchemaReplaced(connection)) return onOutdated?.(replacedSchema);
      checkedAt = clock.now();
    }
    const at = await readNextDueAt(connection);
    // Called only after the database has answered; before that, nothing new is known about accounts.
    accountsListener();
    if (at !== null) dueListener(at);
    if (await hasEndedLeases(connection, node)) leasesListener();
  };
  const keepPolling = async (): Promise<void> => {
    while (!end.signal.aborted) {
      await clock.sleep(clock.now() + pollInterval, end.signal);
      // If the database is unavailable, the next check follows.
      if (!end.signal.aborted) await check().catch(() => undefined);
    }
  };
  const polling = keepPolling();
  return {
    onDue: (listener) => void (dueListener = listener),
    onAccountsChanged: (listener) => void (accountsListener = listener),
    notifyDue: () => undefined,
    notifyAccountsChanged: async () => undefined,
    onLeasesEnded: (listener) => void (leasesListener = listener),
    notifyLeasesEnded: () => undefined,
    close: async () => {
      end.abort();
      await polling;
    },
  };
}

/** Reports whether deliveries in flight of a node were cancelled or ended. */
async function hasEndedLeases({ query, dialect }: DatabaseConnection, node: NodeId): Promise<boolean> {
  const [row] = await query(
    `select 1 as found from messages ${dialect.useIndex("messages_leased")}
      where leased_by is not null and leased_by = ? and state in ('ending', 'cancelling') limit 1`,
    [node],
  );
  return row !== undefined;
}

async function connectListener(
  location: DatabaseLocation,
  onNotification: (notification: Notification) => void,
): Promise<Client> {
  const client = await connect(location, { kind: "listener" });
  client.on("notification", onNotification);
  try {
    // A notified node reads the tables itself, so notifications need not wait for the disk.
    await client.query(
      `listen ${channel}; listen ${accountChannel}; listen ${leaseChannel}; set synchronous_commit = off`,
    );
    return client;
  } catch (error) {
    await client.end().catch(() => undefined);
    throw error;
  }
}

/** Returns the announced time, or null if the payload is this node's own or malformed. */
function parseDueAt(payload: string, node: NodeId): Millis | null {
  const [from, at] = payload.split(" ");
  return from === node || !at || !/^\d{1,15}$/.test(at) ? null : Number(at);
}
