import { randomInt } from "node:crypto";
import { setTimeout as pause } from "node:timers/promises";
import { Client } from "pg";
import { onTestFinished } from "vitest";
import { formatSchemaSql } from "../../../src/operations/outbox/schemaSql.ts";
import { findFreePort } from "../../freePort.ts";
import type { Postgres } from "../../postgres.ts";
import { startPostgres } from "../../postgres.ts";
import type { Process } from "../../server/waypost.ts";
import { toOutboxUrl } from "./userDatabase.ts";
import {
  readCredentials,
  runWaypost,
  startDestination,
  startWaypost,
  temporaryFolder,
} from "../../server/waypost.ts";

/** The rows that were committed, and those that were lost or published twice. */
type Judged = { committed: number; lost: string[]; twice: string[] };
/** The results of a trial. */
type Trial = Judged & { kills: Record<Kill, number> };

const killKinds = ["server", "database", "connection"] as const;
type Kill = (typeof killKinds)[number];

/**
 * Kills the server, the database of the user, or the connection of the relay, at random instants, while rows
 * are inserted. Each deletion of rows takes a while, so most kills are between the publish and the commit.
 * Messages of some rows fail at once and are deleted from the dead letters meanwhile.
 */
export async function runKills(kills: number): Promise<Trial> {
  const { database, server, writer, judge } = await openTrial();
  const done: Record<Kill, number> = { server: 0, database: 0, connection: 0 };
  for (let kill = 0; kill < kills; kill++) {
    await writer.insert(20);
    await pause(randomInt(5, 400));
    const kind = killKinds[kill % killKinds.length] ?? "server";
    done[kind]++;
    if (kind === "server") await server.restart();
    else if (kind === "connection") await writer.endRelay();
    else {
      await database.down("SIGKILL");
      await database.up();
    }
    if (kill % 10 === 9) await server.deleteDeadLetters();
  }
  return { ...(await judge()), kills: done };
}

/**
 * Ends the database of the user for some seconds while rows are being taken, and kills the server meanwhile.
 * `shown`: the outbox, its dead letters, and the output of the doctor and of the overview then.
 */
export async function runOutage(seconds: number): Promise<Judged & { shown: Record<string, unknown> }> {
  const { database, server, writer, judge } = await openTrial();
  await writer.insert(300);
  await database.down("SIGKILL");
  await pause((seconds * 1e3) / 2);
  await server.restart();
  await pause((seconds * 1e3) / 2);
  const shown = {
    outbox: (await server.ask("GET", "/v2/outboxes/shop")).body,
    deadLetters: (await server.ask("GET", "/v2/dlq?label=outbox:shop&count=1")).body,
    ...(await server.diagnose()),
  };
  await database.up();
  await writer.insert(300);
  return { ...(await judge()), shown };
}

/** Starts the parts of a trial. Messages of each seventh row fail. */
async function openTrial() {
  // The process is killed, not the machine: what was written is safe without fsync.
  const database = await startPostgres({ more: { synchronous_commit: "on" } });
  onTestFinished(() => database.stop());
  await prepare(database);
  const messages = new Map<string, Set<string>>();
  const destination = await startDestination(({ headers, body }) => {
    const row = body.toString();
    const id = String(headers["svc-message-id"] ?? headers["upstash-message-id"]);
    messages.set(row, (messages.get(row) ?? new Set()).add(id));
    return { status: Number(row) % 7 === 0 ? 500 : 200 };
  });
  const server = new RestartedServer();
  await server.start();
  await server.addOutbox(database.url);
  const writer = new RowWriter(database, destination.url);
  /** Waits until all rows are taken, and looks at their messages. */
  const judge = async (): Promise<Judged> => {
    await writer.waitUntilEmpty();
    const rows = writer.committed;
    // Deliveries follow the publish.
    for (let waits = 0; waits < 600 && rows.some((row) => !messages.has(row)); waits++) await pause(100);
    await writer.end();
    return {
      committed: rows.length,
      lost: rows.filter((row) => !messages.has(row)),
      twice: rows.filter((row) => (messages.get(row)?.size ?? 0) > 1),
    };
  };
  return { database, server, writer, judge };
}

/** Creates the outbox, in which each deletion of rows takes up to 40 ms. */
async function prepare({ url }: Postgres): Promise<void> {
  const sql = new Client({ connectionString: url });
  await sql.connect();
  await sql.query(formatSchemaSql({ schema: "waypost" }));
  await sql.query(`create function slow() returns trigger language plpgsql as
    $$ begin perform pg_sleep(random() * 0.04); return null; end $$;
    create trigger slow before delete on waypost.outbox for each statement execute function slow()`);
  await sql.end();
}

/** A server that is killed and started again, on the same data and port. */
class RestartedServer {
  readonly #data = temporaryFolder();
  #port = 0;
  #process: Process | null = null;
  #token = "";

  async start(): Promise<void> {
    this.#port ||= await findFreePort();
    const flags = ["--port", String(this.#port), "--data", this.#data, "--egress-allow", "127.0.0.0/8"];
    this.#process = await startWaypost(["start", ...flags, "--dlq-retention", "1d"]);
    this.#token ||=
      /(?:TOKEN=|token\W+)"?(\S{20,}?)"?$/im.exec(await readCredentials("--data", this.#data))?.[1] ?? "";
  }

  async restart(): Promise<void> {
    this.#process?.kill("SIGKILL");
    await this.#process?.ended;
    await this.start();
  }

  async ask(method: string, path: string, body?: unknown): Promise<{ status: number; body: unknown }> {
    const response = await fetch(`${this.#process?.url}${path}`, {
      method,
      headers: { Authorization: `Bearer ${this.#token}` },
      ...(body !== undefined && { body: JSON.stringify(body) }),
    });
    return { status: response.status, body: await response.json() };
  }

  async addOutbox(url: string): Promise<void> {
    const request = { databaseUrl: toOutboxUrl(url), token: this.#token };
    const { status, body } = await this.ask("PUT", "/v2/outboxes/shop", request);
    if (status !== 200) throw new Error(JSON.stringify(body));
  }

  /** Returns the output of two commands that say what is wrong. */
  async diagnose(): Promise<{ doctor: string; overview: string }> {
    const environment = { WAYPOST_URL: this.#process?.url, WAYPOST_TOKEN: this.#token };
    const [doctor, overview] = await Promise.all([
      runWaypost(["doctor", "--data", this.#data]).ended,
      runWaypost(["overview"], environment).ended,
    ]);
    return { doctor: doctor.out, overview: overview.out };
  }

  async deleteDeadLetters(): Promise<void> {
    await this.ask("DELETE", "/v2/dlq?label=outbox:shop&count=100");
  }
}

/** Inserts rows in transactions, and knows which of them were committed. */
class RowWriter {
  readonly #database: Postgres;
  readonly #destination: string;
  readonly committed: string[] = [];
  #next = 0;
  #sql: Client | null = null;

  constructor(database: Postgres, destination: string) {
    this.#database = database;
    this.#destination = destination;
  }

  async #connect(): Promise<Client> {
    if (this.#sql) return this.#sql;
    const sql = new Client({ connectionString: this.#database.url });
    sql.on("error", () => (this.#sql = null));
    await sql.connect();
    return (this.#sql = sql);
  }

  /** Inserts rows, each in its own transaction; each fifth one rolls back. */
  async insert(count: number): Promise<void> {
    const sql = await this.#connect();
    for (let at = 0; at < count; at++) {
      const row = String(++this.#next);
      const settings = '{"Svc-Retries": 0}';
      await sql.query("begin");
      await sql.query("select waypost.publish($1, $2::text, $3)", [this.#destination, row, settings]);
      const isKept = this.#next % 5 !== 0;
      await sql.query(isKept ? "commit" : "rollback");
      if (isKept) this.committed.push(row);
    }
  }

  /** Ends the connections of the relay, as a network failure would. */
  async endRelay(): Promise<void> {
    const sql = await this.#connect();
    await sql.query(
      "select pg_terminate_backend(pid) from pg_stat_activity where application_name = 'waypost outbox'",
    );
  }

  async waitUntilEmpty(): Promise<void> {
    const sql = await this.#connect();
    for (let waits = 0; waits < 1_200; waits++) {
      const { rows } = await sql.query("select 1 from waypost.outbox limit 1");
      if (rows.length === 0) return;
      await pause(100);
    }
    throw new Error("rows are left in the outbox");
  }

  async end(): Promise<void> {
    await this.#sql?.end();
  }
}
