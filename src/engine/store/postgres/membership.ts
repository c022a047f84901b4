import type { Client } from "pg";
import type { Millis, NodeId } from "../../core/values/basics.ts";
import type { NodeRecord } from "../../core/cluster/nodeState.ts";
import type { NodeMembership, MembershipHistory } from "../../core/cluster/takeover.ts";
import {
  hasOtherNodes,
  recordTakeover,
  nextCheckDelay,
  observeMemberships,
} from "../../core/cluster/takeover.ts";
import type { DatabaseConnection } from "../sql/database.ts";
import { createConnection } from "./connection.ts";
import type { Membership, Unsubscribe } from "../store.ts";

/** The id of the row with the latest time of a store that was moved here. It is not a node. */
export const movedNode = "moved";

const lockKey = (id: string, membership: string): string =>
  `hashtextextended('waypost node ' || ${id} || ' ' || ${membership}, 0)`;

const beginMembershipSql = `insert into nodes (id, started_at, version, session) values (?, ?, ?, 1)
  on conflict (id) do update set session = nodes.session + 1 returning session`;

/**
 * Reports whether the membership of a row of the table `nodes` is alive, as 1 or 0. The column `session` has
 * the number of the membership.
 */
const isAliveSql = `case when ${lockKey("nodes.id", "session")} in (
      select (classid::bigint << 32) | objid::bigint from pg_locks
      where locktype = 'advisory' and granted and objsubid = 1
        and database = (select oid from pg_database where datname = current_database())
    ) then 1 else 0 end`;

const otherNodesSql = `select
    pg_postmaster_start_time()::text || ' ' || left(pg_walfile_name(pg_current_wal_lsn()), 8) as server,
    nodes.id, session, version, ${isAliveSql} as alive
  from nodes where id <> ? and session > 0`;

const allNodesSql = `select id, started_at, version, used_at, session, ${isAliveSql} as alive
  from nodes where id <> '${movedNode}' order by greatest(used_at, started_at) desc, id limit ?`;

/** The number of nodes in one list. Each start of a server is a node. */
const maxListedNodes = 100;

/** Returns the nodes of a database, those that have changed something last first. */
export async function readNodes({ query }: Pick<DatabaseConnection, "query">): Promise<NodeRecord[]> {
  return (await query(allNodesSql, [maxListedNodes])).map((row) => ({
    id: String(row["id"]),
    version: String(row["version"]),
    startedAt: Number(row["started_at"]),
    changedAt: Number(row["used_at"]) || null,
    membership: Number(row["session"]),
    isAlive: row["alive"] === 1,
  }));
}

/** How often a node checks the other nodes, in milliseconds. */
const checkInterval: Millis = 500;
/** The time after which every other node has checked a node that has taken its lock. */
const observedByAllAfter: Millis = 3_000;

/**
 * Raises the membership number of a node and returns it. Messages leased in earlier memberships can then no
 * longer be taken over.
 */
export async function beginMembership(
  connection: DatabaseConnection,
  { node, version = "" }: Pick<MembershipOptions, "node" | "version">,
  now: Millis,
): Promise<number> {
  const [row] = await connection.query(beginMembershipSql, [node, now, version]);
  return Number(row?.["session"]);
}

type MembershipOptions = { node: NodeId; version?: string; clock: { now(): Millis }; elapsed?(): Millis };

/**
 * The membership of this node: an advisory lock on the connection that listens. Each connection takes a
 * different lock, whose number is in the row of the node. A new connection therefore does not wait for a lost
 * connection whose loss the database has not noticed yet.
 */
export class PostgresMembership implements Membership {
  readonly #options: MembershipOptions;
  readonly #listeners = new Set<() => void>();
  #client: Client | null = null;
  #observed: MembershipHistory | null = null;
  #isAlive = true;
  #isUsed = false;
  #takenAt: Millis = 0;
  /** When this connection sent the last query that the database answered. */
  #answeredAt: Millis = 0;
  #lostFor: Millis = 0;
  #areAlike = false;

  constructor(options: MembershipOptions) {
    this.#options = options;
  }

  isAlive(): boolean {
    return this.#isAlive;
  }

  lostFor(): Millis {
    return this.#lostFor;
  }

  /**
   * Reports whether all nodes that were alive at the last check have the version of this node. False before
   * the first check, and while this node has no lock, because it then does not look at the others.
   */
  areAlike(): boolean {
    return this.#areAlike;
  }

  onChange(listener: () => void): Unsubscribe {
    this.#listeners.add(listener);
    return () => this.#listeners.delete(listener);
  }

  /**
   * Takes the lock on a new connection. Rejects if the database refuses something that memberships need;
   * leases then end only at their due time.
   */
  async take(client: Client): Promise<void> {
    const connection = createConnection((query) => client.query(query));
    const { node, clock } = this.#options;
    // This query runs first, so that a database that refuses it does so before another node can see the lock.
    await connection.query(otherNodesSql, [node]);
    const membership = await beginMembership(connection, this.#options, clock.now());
    this.#isUsed = true;
    await connection.query(`select pg_advisory_lock(${lockKey("?::text", "?::text")}) is null as taken`, [
      node,
      String(membership),
    ]);
    this.#client = client;
    this.#takenAt = this.#now();
    await this.checkOtherNodes(connection);
    client.once("end", () => this.#lose(client, 0));
    this.#set(true);
  }

  /** Checks the other nodes. Returns the memberships whose leases end now. */
  async checkOtherNodes(connection: DatabaseConnection): Promise<NodeMembership[]> {
    const askedAt = this.#now();
    const found = await connection.query(otherNodesSql, [this.#options.node]);
    this.#answeredAt = askedAt;
    const { version: own = "" } = this.#options;
    this.#areAlike = found.every(({ version, alive }) => alive !== 1 || version === own);
    const [first] = found;
    if (!first) return [];
    const memberships = found.map(({ id, session, alive }) => ({
      node: String(id),
      membership: Number(session),
      isAlive: alive === 1,
    }));
    const at = this.#now();
    // Another node that has not checked since this node took its lock may assume that it is alone.
    // Observations from that time are therefore not used.
    const previous = at - this.#takenAt < observedByAllAfter ? null : this.#observed;
    const observation = observeMemberships(previous, { server: String(first.server), memberships, at });
    this.#observed = observation.watch;
    return observation.gone;
  }

  /** Returns the time until the next check, in milliseconds. */
  nextCheckDelay(): Millis {
    return nextCheckDelay(this.#observed, this.#now(), checkInterval);
  }

  /** Records that the leases of a membership have ended. */
  recordTakeover(membership: NodeMembership): void {
    this.#observed &&= recordTakeover(this.#observed, membership, this.#now());
  }

  /** Ends the membership when this node shuts down, because it has no leases any more. */
  async end(connection: DatabaseConnection): Promise<void> {
    if (this.#isUsed)
      await connection.query("update nodes set session = 0 where id = ?", [this.#options.node]);
  }

  /**
   * Ends the use of memberships, because this node will have no lock any more. Raises the membership number
   * first, so that the other nodes no longer use what they have observed.
   */
  async abandon(connection: DatabaseConnection): Promise<void> {
    this.#areAlike = false;
    if (!this.#isUsed) return;
    await connection.query("update nodes set session = session + 1 where id = ?", [this.#options.node]);
    this.#set(true);
  }

  #now(): Millis {
    return this.#options.elapsed?.() ?? this.#options.clock.now();
  }

  /**
   * Called if the connection with the lock does not answer while another connection does. The database may
   * have ended the connection at any time since its last answer.
   */
  loseUnresponsive(client: Client): void {
    this.#lose(client, this.#now() - this.#answeredAt);
  }

  /**
   * Gives up the lock. If this node has seen no other node, its deliveries continue, because no node can end
   * its leases early.
   */
  #lose(client: Client, lostFor: Millis): void {
    if (this.#client !== client) return;
    this.#client = null;
    this.#areAlike = false;
    this.#lostFor = lostFor;
    if (hasOtherNodes(this.#observed)) this.#set(false);
  }

  #set(isAlive: boolean): void {
    if (this.#isAlive === isAlive) return;
    this.#isAlive = isAlive;
    for (const listener of this.#listeners) listener();
  }
}
