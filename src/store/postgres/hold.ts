import type { Client } from "pg";
import type { Millis, NodeId } from "../../core/model/message.ts";
import type { Session, Watch } from "../../core/nodes/takeover.ts";
import { hasOthers, taken, untilNextLook, watch } from "../../core/nodes/takeover.ts";
import type { Connection } from "../sql/database.ts";
import { connectionOf } from "./session.ts";
import type { Hold, Unsubscribe } from "../store.ts";

const key = (id: string, session: string): string => `hashtextextended('waypost node ' || ${id} || ' ' || ${session}, 0)`;

const begin = `insert into nodes (id, started_at, session) values (?, ?, 1)
  on conflict (id) do update set session = nodes.session + 1 returning session`;

const look = `select pg_postmaster_start_time()::text || ' ' || left(pg_walfile_name(pg_current_wal_lsn()), 8) as server, nodes.id, session,
    case when ${key("nodes.id", "session")} in (select (classid::bigint << 32) | objid::bigint from pg_locks
      where locktype = 'advisory' and granted and objsubid = 1
        and database = (select oid from pg_database where datname = current_database())) then 1 else 0 end as held
  from nodes where id <> ? and session > 0`;

/** So often a node looks at the others. */
const period: Millis = 500;
/** So long after its own lock was taken every other node has looked. */
const seenByAll: Millis = 3_000;

/** Raises the number of a node's session, so that nothing is taken over from it that was leased before, and returns it. */
export async function beginSession(connection: Connection, node: NodeId, now: Millis): Promise<number> {
  const [row] = await connection.query(begin, [node, now]);
  return Number(row?.["session"]);
}

type Parts = { node: NodeId; clock: { now(): Millis }; elapsed?(): Millis };

/**
 * The hold of this node on its leases: an advisory lock on the connection that listens. Every connection takes another one, whose number
 * is in the row of the node, so that nobody waits for a connection that the database has not missed yet.
 */
export class NodeHold implements Hold {
  readonly #parts: Parts;
  readonly #listeners = new Set<() => void>();
  #client: Client | null = null;
  #seen: Watch | null = null;
  #isHeld = true;
  #isUsed = false;
  #takenAt: Millis = 0;
  /** When the database was last asked something on the connection that it has answered. */
  #provenAt: Millis = 0;
  #lostFor: Millis = 0;

  constructor(parts: Parts) {
    this.#parts = parts;
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
    const connection = connectionOf((query) => client.query(query));
    const { node, clock } = this.#parts;
    // What is refused is refused before anybody can see the lock.
    await connection.query(look, [node]);
    const session = await beginSession(connection, node, clock.now());
    this.#isUsed = true;
    await connection.query(`select pg_advisory_lock(${key("?::text", "?::text")}) is null as held`, [node, String(session)]);
    this.#client = client;
    this.#takenAt = this.#now();
    await this.look(connection);
    client.once("end", () => this.#lose(client, 0));
    this.#set(true);
  }

  /** Looks at the other nodes, and returns those whose leases end now. */
  async look(connection: Connection): Promise<Session[]> {
    const askedAt = this.#now();
    const found = await connection.query(look, [this.#parts.node]);
    this.#provenAt = askedAt;
    const [first] = found;
    if (!first) return [];
    const sessions = found.map(({ id, session, held }) => ({ node: String(id), session: Number(session), isHeld: held === 1 }));
    const at = this.#now();
    // The others may take it that they are alone until they have looked, so what was seen before that does not count.
    const before = at - this.#takenAt < seenByAll ? null : this.#seen;
    const looked = watch(before, { server: String(first.server), sessions, at });
    this.#seen = looked.watch;
    return looked.gone;
  }

  /** Returns how long until the next look. */
  untilNextLook(): Millis {
    return untilNextLook(this.#seen, this.#now(), period);
  }

  /** The leases of a session have ended. */
  takenOver(session: Session): void {
    this.#seen &&= taken(this.#seen, session, this.#now());
  }

  /** This node ends in order: it has no leases any more. */
  async end(connection: Connection): Promise<void> {
    if (this.#isUsed) await connection.query("update nodes set session = 0 where id = ?", [this.#parts.node]);
  }

  /** There will be no lock any more. What the others saw last must not count, so the session becomes another one first. */
  async giveUp(connection: Connection): Promise<void> {
    if (!this.#isUsed) return;
    await connection.query("update nodes set session = session + 1 where id = ?", [this.#parts.node]);
    this.#set(true);
  }

  #now(): Millis {
    return this.#parts.elapsed?.() ?? this.#parts.clock.now();
  }

  /** The connection does not answer any more, while others do: it may have ended at the database since the last answer. */
  loseSilent(client: Client): void {
    this.#lose(client, this.#now() - this.#provenAt);
  }

  /** Without another node nobody can end the leases early, so what this node is doing may continue. */
  #lose(client: Client, lostFor: Millis): void {
    if (this.#client !== client) return;
    this.#client = null;
    this.#lostFor = lostFor;
    if (hasOthers(this.#seen)) this.#set(false);
  }

  #set(isHeld: boolean): void {
    if (this.#isHeld === isHeld) return;
    this.#isHeld = isHeld;
    for (const listener of this.#listeners) listener();
  }
}
