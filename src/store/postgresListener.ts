import type { Client, Notification } from "pg";
import type { Millis, NodeId } from "../core/message.ts";
import type { Connection } from "./database.ts";
import { tooNewAt } from "./migrate.ts";
import type { Place, PostgresOptions } from "./postgresSession.ts";
import { codeOf, connect, connectionOf } from "./postgresSession.ts";
import { nextDueAt } from "./sqlShelf.ts";

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

/** `connection`: one to read with, for a node that cannot listen. */
type Parts = Place & Pick<PostgresOptions, "node" | "clock" | "onOutdated"> & { connection: Connection };

/** Hears of the other nodes, by listening where the database and the way to it allow that, else by looking every second. */
export async function othersOf(parts: Parts): Promise<Others> {
  if (parts.pooling === "transaction") return poll(parts);
  return listen(parts).catch((error: unknown) => {
    if (refusals.has(codeOf(error) ?? "")) return poll(parts);
    throw error;
  });
}

/** There is no such thing, the user may not, or it is not even understood: by the database, or by what stands before it. */
const refusals: ReadonlySet<string> = new Set(["0A000", "42501", "42601"]);

/**
 * Listens to the other nodes on a connection of its own, and connects again for as long as it takes. Whatever was said
 * meanwhile is lost, so then it tells of time 0: that there may be something to do now.
 */
async function listen({ node, clock, onOutdated, ...place }: Parts): Promise<Others> {
  const end = new AbortController();
  let hear: (at: Millis) => void = () => undefined;
  let hearAccounts: () => void = () => undefined;
  const onNotification = ({ channel: on, payload = "" }: Notification): void => {
    if (on === accountChannel) return payload === node ? undefined : hearAccounts();
    const at = dueAtOf(payload, node);
    if (at !== null) hear(at);
  };
  let client = await listening(place, onNotification);
  const notify = async (on: string, what: string): Promise<void> => {
    await client.query("select pg_notify($1, $2)", [on, what]);
  };
  const teller = new Teller((at) => notify(channel, `${node} ${at}`));

  const keep = async (): Promise<void> => {
    while (!end.signal.aborted) {
      await stillThere(client);
      if (end.signal.aborted) return;
      await client.end().catch(() => undefined);
      await connectAgain();
    }
  };

  /** Ends when the connection is lost, or the listener is closed. */
  const stillThere = async (current: Client): Promise<void> => {
    const wake = new AbortController();
    const lost = (): void => wake.abort();
    const connection = connectionOf((query) => current.query(query));
    const look = async (): Promise<void> => {
      const trouble = await tooNewAt(connection);
      if (trouble !== null) return onOutdated?.(trouble);
      const at = await nextDueAt(connection);
      if (at !== null) hear(at);
    };
    current.once("end", lost);
    end.signal.addEventListener("abort", lost);
    while (!wake.signal.aborted) {
      await clock.sleep(clock.now() + heartbeat, wake.signal);
      if (!wake.signal.aborted) await look().catch(lost);
    }
    end.signal.removeEventListener("abort", lost);
  };

  const connectAgain = async (): Promise<void> => {
    for (let pause = shortestPause; !end.signal.aborted; pause = Math.min(2 * pause, longestPause)) {
      try {
        client = await listening(place, onNotification);
        hearAccounts();
        hear(0);
        return teller.again();
      } catch {
        await clock.sleep(clock.now() + pause, end.signal);
      }
    }
  };

  const kept = keep();
  return {
    hear: (listener) => void (hear = listener),
    hearAccounts: (listener) => void (hearAccounts = listener),
    tell: (dueAt, now) => teller.tell(dueAt, now),
    tellAccounts: () => notify(accountChannel, node),
    close: async () => {
      end.abort();
      await kept;
      await client.end();
    },
  };
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

/** Asks what is due, every second, and takes it that accounts may have been changed. Tells the others nothing: they do the same. */
function poll({ clock, connection, onOutdated }: Parts): Others {
  const end = new AbortController();
  let hear: (at: Millis) => void = () => undefined;
  let hearAccounts: () => void = () => undefined;
  let checkedAt = -Infinity;
  const look = async (): Promise<void> => {
    hearAccounts();
    if (clock.now() - checkedAt >= heartbeat) {
      const trouble = await tooNewAt(connection);
      if (trouble !== null) return onOutdated?.(trouble);
      checkedAt = clock.now();
    }
    const at = await nextDueAt(connection);
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
