import type { Socket } from "node:net";
import { DatabaseError } from "pg";
import type { Client } from "pg";
import { maySendTo } from "../../engine/core/accounts/allowedHosts.ts";
import { EgressRefusal } from "../../engine/delivery/http/egress.ts";
import type { ServerParts } from "../operation.ts";
import { AnswerBudget, createClient, statementTime } from "./client.ts";
import { OutboxFailure } from "./failure.ts";
import type { OutboxSetting } from "./outbox.ts";
import type { AccountOutbox } from "./outbox.ts";
import { parseOutboxUrl } from "./place.ts";
import { outboxVersion } from "./schemaSql.ts";

/** Begins a transaction whose waits are bounded. It also works behind a pooler. */
export const beginBounded =
  `begin isolation level read committed; set local statement_timeout = ${statementTime}; ` +
  `set local idle_in_transaction_session_timeout = ${2 * statementTime}; ` +
  "set local lock_timeout = 5000; set local search_path = pg_catalog; set local bytea_output = hex";

/** Opens connections that obey the rules for destinations. */
export type Connect = Pick<ServerParts, "connect" | "authorities">;

/** Opens a connection to the database of an outbox, until `cut` is aborted. Throws `OutboxFailure`. */
export async function openDatabase(
  { account, allowedHosts, setting: { url, isPooled } }: AccountOutbox,
  { connect, authorities }: Connect,
  cut?: AbortSignal,
): Promise<OutboxDatabase> {
  const place = parseOutboxUrl(url);
  const { host, port } = place;
  const urlHost = host.includes(":") ? `[${host}]` : host;
  if (!maySendTo({ allowedHosts }, `https://${urlHost}/`))
    throw new OutboxFailure("the host of the database is not allowed for this account");
  let socket: Socket | null = null;
  let budget: AnswerBudget | null = null;
  try {
    const opened = await connect({ host, port, account });
    socket = opened;
    cut?.throwIfAborted();
    cut?.addEventListener("abort", () => opened.destroy(), { once: true });
    budget = new AnswerBudget(opened);
    const client = createClient(place, { socket: opened, authorities, budget });
    await client.connect();
    return new OutboxDatabase(client, { socket: opened, budget, isPooled });
  } catch (error) {
    socket?.destroy();
    throw budget?.failure ?? toFailure(error);
  }
}

/** A connection to the database of an outbox. */
export class OutboxDatabase {
  readonly #client: Client;
  readonly #socket: Socket;
  readonly #budget: AnswerBudget;
  readonly isPooled: boolean;
  /** Called when the database reports a new row. */
  onNotice: (() => void) | null = null;

  constructor(
    client: Client,
    { socket, budget, isPooled }: { socket: Socket; budget: AnswerBudget; isPooled: boolean },
  ) {
    this.#client = client;
    this.#socket = socket;
    this.#budget = budget;
    this.isPooled = isPooled;
    client.on("notification", () => this.onNotice?.());
  }

  /** Runs a statement. Throws `OutboxFailure`. */
  async query<Row extends object>(text: string, values?: unknown[]): Promise<Row[]> {
    this.#budget.begin();
    try {
      const { rows } = await this.#client.query<Row>(text, values);
      this.#budget.assertEnough();
      return rows;
    } catch (error) {
      throw this.#budget.failure ?? toFailure(error);
    }
  }

  /**
   * Runs statements without values in one round trip. Returns the rows of the last one with rows. Throws
   * `OutboxFailure`, also if the answer has more than `maxBytes`.
   */
  async run<Row extends object>(text: string, maxBytes?: number): Promise<Row[]> {
    this.#budget.begin(maxBytes);
    try {
      const results: unknown = await this.#client.query(text);
      this.#budget.assertEnough();
      const all = Array.isArray(results) ? (results as { rows: Row[] }[]) : [results as { rows: Row[] }];
      return all.map(({ rows }) => rows).findLast((rows) => rows.length > 0) ?? [];
    } catch (error) {
      throw this.#budget.failure ?? toFailure(error);
    }
  }

  /** Ends the connection, whether or not the database still answers. */
  close(): void {
    this.onNotice = null;
    this.#client.end().catch(() => undefined);
    // Statements in flight fail at once.
    setImmediate(() => this.#socket.destroy());
  }
}

/**
 * Checks that a database has the outbox in this version, and makes `owner` the server that takes its rows.
 * Claiming fails if another server takes them. Throws `OutboxFailure`.
 */
export async function changeOwner(
  database: OutboxDatabase,
  { schema, owner }: Pick<OutboxSetting, "schema" | "owner">,
  how: "claim" | "take over" | "release",
): Promise<void> {
  const [found] = await database.query<{ version: unknown; owner: unknown }>(
    `select version, owner from ${schema}.relay`,
  );
  if (found?.version !== outboxVersion) {
    const version = typeof found?.version === "number" ? found.version : 0;
    throw new OutboxFailure(
      `the schema has version ${version}, and this server needs ${outboxVersion}; ` +
        'run the SQL of "waypost outbox sql" of this version',
    );
  }
  if (how !== "release" && found.owner === owner) return;
  const [changed] = await database.query(
    `update ${schema}.relay set owner = $2 where owner is null or owner = $1 or $3 returning 1 as one`,
    [owner, how === "release" ? null : owner, how === "take over"],
  );
  if (!changed) throw new OutboxFailure(foreignOwner);
}

/** The failure of an outbox that another server has. */
export const foreignOwner =
  'the outbox belongs to another server; "waypost outbox take-over" takes it from that server';

/** The meaning of the codes of PostgreSQL and of Node.js for the owner of an outbox. */
const failures: Readonly<Record<string, string>> = {
  "28000": "the database refuses the login; check the user and the password",
  "28P01": "the database refuses the login; check the user and the password",
  "3D000": "the database does not exist",
  "3F000": 'the schema is missing; run the SQL of "waypost outbox sql"',
  "42P01": 'the schema is missing; run the SQL of "waypost outbox sql"',
  "42501": 'the login lacks rights; run the SQL of "waypost outbox sql --login <name>"',
  "25006": "the database is read-only; use the address of the primary",
  "53100": "the disk of the database is full",
  "53300": "the database has no free connection",
  "57014": "a statement took longer than 10 s",
  "55P03": "a row was locked for longer than 5 s",
  ENOTFOUND: "the host of the database is not known",
  ECONNREFUSED: "the database refuses connections",
};

/** Converts an error of the driver. Its own text may have parts of the URL, and is not shown. */
function toFailure(error: unknown): OutboxFailure {
  if (error instanceof OutboxFailure) return error;
  if (error instanceof EgressRefusal)
    return new OutboxFailure(
      "the address of the database is not public; the operator can allow it with WAYPOST_EGRESS_ALLOW",
    );
  const code = error instanceof Error && "code" in error ? String(error.code) : "";
  const known = Object.hasOwn(failures, code) ? failures[code] : undefined;
  if (known !== undefined) return new OutboxFailure(known);
  if (error instanceof DatabaseError) {
    const shown = /^[\dA-Z]{5}$/.test(code) ? code : "of no known kind";
    return new OutboxFailure(`the database reports the error ${shown}`);
  }
  if (/CERT|SSL|TLS|SELF_SIGNED|ISSUER/.test(code))
    return new OutboxFailure(`TLS with the database failed: ${code}`);
  const doesNoTls = error instanceof Error && error.message.includes("does not support SSL");
  return new OutboxFailure(
    doesNoTls
      ? "the database does not support TLS; with sslmode=disable, the connection is not encrypted"
      : "the database cannot be reached, or does not answer in time",
  );
}
