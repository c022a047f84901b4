import type { Client } from "pg";
import type { Millis, NodeId } from "../../core/model/message.ts";
import type { NodeSession, SessionHistory } from "../../core/nodes/takeover.ts";
import { hasOtherNodes, recordTakeover, nextCheckDelay, observeSessions } from "../../core/nodes/takeover.ts";
import type { DatabaseConnection } from "../sql/database.ts";
import { createConnection } from "./session.ts";
import type { SessionLease, Unsubscribe } from "../store.ts";

const lockKey = (id: string, session: string): string => `hashtextextended('waypost node ' || ${id} || ' ' || ${session}, 0)`;

const beginSessionSql = `insert into nodes (id, started_at, session) values (?, ?, 1)
  on conflict (id) do update set session = nodes.session + 1 returning session`;

const otherNodesSql = `select pg_postmaster_start_time()::text || ' ' || left(pg_walfile_name(pg_current_wal_lsn()), 8) as server, nodes.id, session,
    case when ${lockKey("nodes.id", "session")} in (select (classid::bigint << 32) | objid::bigint from pg_locks
      where locktype = 'advisory' and granted and objsubid = 1
        and database = (select oid from pg_database where datname = current_database())) then 1 else 0 end as held
  from nodes where id <> ? and session > 0`;

/** So often a node looks at the others. */
const checkInterval: Millis = 500;
/** So long after its own lock was taken every other node has looked. */
const observedByAllAfter: Millis = 3_000;

/** Raises the number of a node's session, so that nothing is taken over from it that was leased before, and returns it. */
export async function beginSession(connection: DatabaseConnection, node: NodeId, now: Millis): Promise<number> {
  const [row] = await connection.query(beginSessionSql, [node, now]);
  return Number(row?.["session"]);
}

type SessionLeaseOptions = { node: NodeId; clock: { now(): Millis }; elapsed?(): Millis };

/**
 * The hold of this node on its leases: an advisory lock on the connection that listens. Every connection takes another one, whose number
 * is in the row of the node, so that nobody waits for a connection that the database has not missed yet.
 */
export class NodeSessionLease implements SessionLease {
  readonly #options: SessionLeaseOptions;
  readonly #listeners = new Set<() => void>();
  #client: Client | null = null;
  #observed: SessionHistory | null = null;
  #isHeld = true;
  #isUsed = false;
  #takenAt: Millis = 0;
  /** When the database was last asked something on the connection that it has answered. */
  #answeredAt: Millis = 0;
  #lostFor: Millis = 0;

  constructor(options: SessionLeaseOptions) {
    this.#options = options;
  }

  isHeld(): boolean {
    return this.#isHeld;
  }

  lostFor(): Millis {
    return this.#lostFor;
  }

  onChange(listener: () => void): Unsubscribe {
    this.#listeners.add(listener);
    return () => this.#listeners.delete(listener);
  }

  /** Takes the lock on a new connection. Rejects where the database refuses what is needed; then the leases end by time alone. */
  async take(client: Client): Promise<void> {
    const connection = createConnection((query) => client.query(query));
    const { node, clock } = this.#options;
    // What is refused is refused before anybody can see the lock.
    await connection.query(otherNodesSql, [node]);
    const session = await beginSession(connection, node, clock.now());
    this.#isUsed = true;
    await connection.query(`select pg_advisory_lock(${lockKey("?::text", "?::text")}) is null as held`, [node, String(session)]);
    this.#client = client;
    this.#takenAt = this.#now();
    await this.checkOtherNodes(connection);
    client.once("end", () => this.#lose(client, 0));
    this.#set(true);
  }

  /** Looks at the other nodes, and returns those whose leases end now. */
  async checkOtherNodes(connection: DatabaseConnection): Promise<NodeSession[]> {
    const askedAt = this.#now();
    const found = await connection.query(otherNodesSql, [this.#options.node]);
    this.#answeredAt = askedAt;
    const [first] = found;
    if (!first) return [];
    const sessions = found.map(({ id, session, held }) => ({ node: String(id), session: Number(session), isHeld: held === 1 }));
    const at = this.#now();
    // The others may take it that they are alone until they have looked, so what was seen before that does not count.
    const previous = at - this.#takenAt < observedByAllAfter ? null : this.#observed;
    const observation = observeSessions(previous, { server: String(first.server), sessions, at });
    this.#observed = observation.watch;
    return observation.gone;
  }

  /** Returns how long until the next look. */
  nextCheckDelay(): Millis {
    return nextCheckDelay(this.#observed, this.#now(), checkInterval);
  }

  /** The leases of a session have ended. */
  recordTakeover(session: NodeSession): void {
    this.#observed &&= recordTakeover(this.#observed, session, this.#now());
  }

  /** This node ends in order: it has no leases any more. */
  async end(connection: DatabaseConnection): Promise<void> {
    if (this.#isUsed) await connection.query("update nodes set session = 0 where id = ?", [this.#options.node]);
  }

  /** There will be no lock any more. What the others saw last must not count, so the session becomes another one first. */
  async abandon(connection: DatabaseConnection): Promise<void> {
    if (!this.#isUsed) return;
    await connection.query("update nodes set session = session + 1 where id = ?", [this.#options.node]);
    this.#set(true);
  }

  #now(): Millis {
    return this.#options.elapsed?.() ?? this.#options.clock.now();
  }

  /** The connection does not answer any more, while others do: it may have ended at the database since the last answer. */
  loseUnresponsive(client: Client): void {
    this.#lose(client, this.#now() - this.#answeredAt);
  }

  /** Without another node nobody can end the leases early, so what this node is doing may continue. */
  #lose(client: Client, lostFor: Millis): void {
    if (this.#client !== client) return;
    this.#client = null;
    this.#lostFor = lostFor;
    if (hasOtherNodes(this.#observed)) this.#set(false);
  }

  #set(isHeld: boolean): void {
    if (this.#isHeld === isHeld) return;
    this.#isHeld = isHeld;
    for (const listener of this.#listeners) listener();
  }
}
