import type { Client, Notification } from "pg";
import type { Millis, NodeId } from "../../core/model/message.ts";
import type { Connection } from "../sql/database.ts";
import { isReplaced, isSchemaKnown, replacedSchema } from "../sql/schema.ts";
import type { Session } from "../../core/nodes/takeover.ts";
import type { NodeHold } from "./hold.ts";
import type { Place, PostgresOptions } from "./session.ts";
import { codeOf, connect, connectionOf, cut } from "./session.ts";
import { whileHostAnswers } from "./silence.ts";
import { nextDueAt } from "../sql/reads.ts";
import { Unavailable } from "../store.ts";

/** Where nodes tell each other what became due: `<node> <time of the database>`. */
const channel = "waypost_due";

/** Where they tell each other that accounts were changed: `<node>`. */
const accountChannel = "waypost_accounts";

/**
 * So often a node that listens looks for itself when something is due. It shows, too, whether the connection is still there. What a
 * node stored and could not tell of any more, because it ended between the two, is found so at the latest. So is it when the tables
 * have become too new for a node that has nothing to write.
 */
const heartbeat: Millis = 30_000;
/** So often a node looks that cannot listen. */
const pollPeriod: Millis = 1_000;
/**
 * If a look at the other nodes takes longer than this, and another connection answers meanwhile, the connection that does not, and the lock on
 * it, may be gone. If no connection answers, the database is slow, and nobody takes anything over.
 */
const lookPatience: Millis = 300;
/** So long an end in order waits for the database. */
const endPatience: Millis = 1_000;
/** Between two tries to connect again, at least and at most. */
const shortestPause: Millis = 100;
const longestPause: Millis = 5_000;

export type Others = {
  /** Sets who is told the times that other nodes tell of. */
  hear(tell: (at: Millis) => void): void;
  /** Sets who is told that accounts were changed. */
  hearAccounts(tell: () => void): void;
  /** Tells the others when something that this node has stored is due. Does not wait until they were told. */
  tell(dueAt: Millis, now: Millis): void;
  tellAccounts(): Promise<void>;
  close(): Promise<void>;
};

/** `connection`: one to read with, for a node that cannot listen, or can no longer. */
type Parts = Place & Pick<PostgresOptions, "node" | "clock" | "onOutdated"> & { connection: Connection; holding: Holding };

/** `takeOver` is called with each node whose leases end early. */
type Holding = { hold: NodeHold; takeOver(session: Session): Promise<void> };

/** Hears of the other nodes, by listening where the database and the way to it allow that, else by looking every second. */
export async function othersOf(parts: Parts): Promise<Others> {
  if (parts.pooling === "transaction") return poll(parts);
  return listen(parts).catch((error: unknown) => {
    if (isRefused(error)) return poll(parts);
    throw error;
  });
}

/** There is no such thing, the user may not, or it is not even understood: by the database, or by what stands before it. */
const refusals: ReadonlySet<string> = new Set(["0A000", "42501", "42601"]);
const isRefused = (error: unknown): boolean => refusals.has(codeOf(error) ?? "");

async function listen(parts: Parts): Promise<Others> {
  const listener = new Listener(parts);
  await listener.begin();
  return listener;
}

/**
 * Listens to the other nodes on a connection of its own, and connects again for as long as it takes. Whatever was said
 * meanwhile is lost, so then it tells of time 0: that there may be something to do now. Where it is refused then what it was
 * allowed at first (a pooler, or another database, answers under the same name now), it looks every second from there on.
 */
class Listener implements Others {
  readonly #parts: Parts;
  readonly #teller: Teller;
  readonly #end = new AbortController();
  #hear: (at: Millis) => void = () => undefined;
  #hearAccounts: () => void = () => undefined;
  #client: Client | null = null;
  #polling: Others | null = null;
  /** Whether this database has holds, as far as is known. */
  #holds = true;
  readonly #takingOver = new Set<string>();
  #kept: Promise<void> = Promise.resolve();

  constructor(parts: Parts) {
    this.#parts = parts;
    this.#teller = new Teller((at) => this.#notify(channel, `${parts.node} ${at}`));
  }

  async begin(): Promise<void> {
    const client = await this.#connect();
    this.#kept = this.#keep(client);
  }

  hear(tell: (at: Millis) => void): void {
    this.#hear = tell;
  }

  hearAccounts(tell: () => void): void {
    this.#hearAccounts = tell;
  }

  tell(dueAt: Millis, now: Millis): void {
    (this.#polling ?? this.#teller).tell(dueAt, now);
  }

  async tellAccounts(): Promise<void> {
    await (this.#polling?.tellAccounts() ?? this.#notify(accountChannel, this.#parts.node));
  }

  async close(): Promise<void> {
    await this.#within(endPatience, this.#parts.holding.hold.end(this.#parts.connection));
    this.#end.abort();
    // What is still unanswered here does not matter, so closing does not wait for it.
    if (this.#client) cut(this.#client);
    await this.#kept;
    await this.#polling?.close();
  }

  async #notify(on: string, what: string): Promise<void> {
    await this.#client?.query("select pg_notify($1, $2)", [on, what]);
  }

  async #keep(first: Client): Promise<void> {
    for (let client: Client | null = first; client && !this.#end.signal.aborted; client = await this.#connectAgain()) {
      await this.#stillThere(client);
      if (this.#end.signal.aborted) return;
      cut(client);
    }
    if (!this.#end.signal.aborted) this.#lookInstead();
  }

  /** Ends when the connection is lost, or the listener is closed. */
  async #stillThere(client: Client): Promise<void> {
    const { clock } = this.#parts;
    const wake = new AbortController();
    const lost = (): void => wake.abort();
    const pause = (time: Millis, until: AbortSignal): Promise<void> => clock.sleep(clock.now() + time, until);
    const connection = connectionOf((query) => client.query(query));
    client.once("end", lost);
    this.#end.signal.addEventListener("abort", lost);
    const watching = this.#watchNodes(client, wake);
    while (!wake.signal.aborted) {
      await clock.sleep(clock.now() + heartbeat, wake.signal);
      if (!wake.signal.aborted) await whileHostAnswers(this.#look(connection), { client, place: this.#parts, pause }).catch(lost);
    }
    this.#end.signal.removeEventListener("abort", lost);
    await watching;
  }

  /** Looks which other nodes are there. A connection that does not answer is given up, and the hold with it. */
  async #watchNodes(client: Client, lost: AbortController): Promise<void> {
    const { clock, holding } = this.#parts;
    const connection = connectionOf((query) => client.query(query));
    while (this.#holds && !lost.signal.aborted) {
      await clock.sleep(clock.now() + holding.hold.untilNextLook(), lost.signal);
      if (lost.signal.aborted) return;
      const looking = holding.hold.look(connection).catch(() => null);
      const gone = (await this.#within(lookPatience, looking)) ?? (await Promise.race([looking, this.#otherAnswers(lost.signal)]));
      for (const session of gone ?? []) void this.#takeOver(session);
      if (gone !== null || lost.signal.aborted) continue;
      holding.hold.loseSilent(client);
      lost.abort();
    }
  }

  /** Returns null when the database has answered on another connection, or when it does not matter any more. */
  async #otherAnswers(end: AbortSignal): Promise<null> {
    const { clock, connection } = this.#parts;
    while (!end.aborted) {
      const answers = await connection.query("select 1 as one", []).then(
        () => true,
        () => false,
      );
      if (answers) break;
      await clock.sleep(clock.now() + lookPatience, end);
    }
    // An answer to the look that came in before this one counts.
    return new Promise((resolve) => setImmediate(resolve, null));
  }

  /** One at a time of each session. Those of several may wait for the storage at the same time, and no look waits for any of them. */
  async #takeOver(session: Session): Promise<void> {
    const { hold, takeOver } = this.#parts.holding;
    const name = `${session.node} ${session.session}`;
    if (this.#takingOver.has(name)) return;
    this.#takingOver.add(name);
    // If it fails, the session is still gone at the next look.
    await takeOver(session).then(
      () => {
        hold.takenOver(session);
        // What the node gave back itself, nobody was told of.
        this.#hear(0);
      },
      () => undefined,
    );
    this.#takingOver.delete(name);
  }

  /** Returns the answer; null if it fails, or takes longer than this. */
  async #within<T>(time: Millis, answer: Promise<T>): Promise<T | null> {
    const { clock } = this.#parts;
    const over = new AbortController();
    // What has come in while this process stood still counts.
    const late = clock.sleep(clock.now() + time, over.signal).then(() => new Promise<null>((resolve) => setImmediate(resolve, null)));
    try {
      return await Promise.race([answer.catch(() => null), late]);
    } finally {
      over.abort();
    }
  }

  async #look(connection: Connection): Promise<void> {
    if (await isSchemaReplaced(connection)) return this.#parts.onOutdated?.(replacedSchema);
    const at = await nextDueAt(connection);
    if (at !== null) this.#hear(at);
  }

  /** Null: it may not listen there any more, or is closed. */
  async #connectAgain(): Promise<Client | null> {
    const { clock } = this.#parts;
    for (let pause = shortestPause; !this.#end.signal.aborted; pause = Math.min(2 * pause, longestPause)) {
      try {
        const client = await this.#connect();
        this.#lookNow();
        this.#teller.again();
        return client;
      } catch (error) {
        if (isRefused(error)) return null;
        await clock.sleep(clock.now() + pause, this.#end.signal);
      }
    }
    return null;
  }

  async #connect(): Promise<Client> {
    const client = (this.#client = await listening(this.#parts, (notification) => this.#take(notification)));
    await this.#hold(client);
    return client;
  }

  /** A database that refuses a part of it has no holds: leases run out by time then. */
  async #hold(client: Client): Promise<void> {
    if (!this.#holds) return;
    try {
      await this.#parts.holding.hold.take(client);
    } catch (error) {
      if (error instanceof Unavailable) {
        cut(client);
        throw error;
      }
      this.#holds = false;
      void this.#giveUpHold();
    }
  }

  #take({ channel: on, payload = "" }: Notification): void {
    const { node } = this.#parts;
    if (on === accountChannel) return payload === node ? undefined : this.#hearAccounts();
    const at = dueAtOf(payload, node);
    if (at !== null) this.#hear(at);
  }

  async #giveUpHold(): Promise<void> {
    const { clock, connection, holding } = this.#parts;
    while (!this.#end.signal.aborted) {
      try {
        return await holding.hold.giveUp(connection);
      } catch {
        await clock.sleep(clock.now() + pollPeriod, this.#end.signal);
      }
    }
  }

  #lookNow(): void {
    this.#hearAccounts();
    this.#hear(0);
  }

  #lookInstead(): void {
    this.#holds = false;
    void this.#giveUpHold();
    this.#polling = poll(this.#parts);
    this.#polling.hear((at) => this.#hear(at));
    this.#polling.hearAccounts(() => this.#hearAccounts());
    this.#lookNow();
  }
}

/**
 * The commits of all nodes that notify wait for each other, so it is done beside the batches and not in them, and no more than
 * is needed: one at a time, and none for what the others see anyhow. They have all been told to look at some time that is still to
 * come; then they see whatever is due later. So a thousand leases a second are told of once in the time of a lease.
 */
class Teller {
  readonly #notify: (at: Millis) => Promise<void>;
  /** When the others look, as far as they were told by this node. */
  #told: Millis | null = null;
  #next: Millis | null = null;
  #isTelling = false;

  constructor(notify: (at: Millis) => Promise<void>) {
    this.#notify = notify;
  }

  tell(dueAt: Millis, now: Millis): void {
    if (this.#told !== null && now < this.#told && this.#told <= dueAt) return;
    this.#told = dueAt;
    this.#next = Math.min(this.#next ?? Infinity, dueAt);
    if (!this.#isTelling) void this.#send();
  }

  /** The connection is new. What was lost with the old one is not known, so they are told to look now. */
  again(): void {
    if (this.#told === null) return;
    this.#told = null;
    this.tell(0, 0);
  }

  async #send(): Promise<void> {
    this.#isTelling = true;
    try {
      for (let at = this.#next; at !== null; at = this.#next) {
        this.#next = null;
        await this.#notify(at);
      }
    } catch {
      // The connection is lost: `again` follows.
    }
    this.#isTelling = false;
  }
}

/** Reports whether the tables are no longer those that this node created. */
async function isSchemaReplaced({ query }: Connection): Promise<boolean> {
  const [row] = await query(`select ${isSchemaKnown("postgres")}`, []);
  return isReplaced(row);
}

/** Asks what is due, every second, and takes it that accounts may have been changed. Tells the others nothing: they do the same. */
function poll({ clock, connection, onOutdated }: Parts): Others {
  const end = new AbortController();
  let hear: (at: Millis) => void = () => undefined;
  let hearAccounts: () => void = () => undefined;
  let checkedAt = -Infinity;
  const look = async (): Promise<void> => {
    if (clock.now() - checkedAt >= heartbeat) {
      if (await isSchemaReplaced(connection)) return onOutdated?.(replacedSchema);
      checkedAt = clock.now();
    }
    const at = await nextDueAt(connection);
    // While nobody answers, nothing is known of accounts that was not known before.
    hearAccounts();
    if (at !== null) hear(at);
  };
  const keep = async (): Promise<void> => {
    while (!end.signal.aborted) {
      await clock.sleep(clock.now() + pollPeriod, end.signal);
      // Without a database there is nothing to do; the next look follows.
      if (!end.signal.aborted) await look().catch(() => undefined);
    }
  };
  const kept = keep();
  return {
    hear: (listener) => void (hear = listener),
    hearAccounts: (listener) => void (hearAccounts = listener),
    tell: () => undefined,
    tellAccounts: async () => undefined,
    close: async () => {
      end.abort();
      await kept;
    },
  };
}

async function listening(place: Place, onNotification: (notification: Notification) => void): Promise<Client> {
  const client = await connect(place, { kind: "listener" });
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
function dueAtOf(payload: string, node: NodeId): Millis | null {
  const [from, at] = payload.split(" ");
  return from === node || !at || !/^\d{1,15}$/.test(at) ? null : Number(at);
}
