import type { Socket } from "node:net";
import type { Duplex } from "node:stream";
import { getCACertificates } from "node:tls";
import { Client, types } from "pg";
import type { ClientConfig } from "pg";
import type { Millis } from "../../engine/core/values/basics.ts";
import { second } from "../../engine/core/values/time.ts";
import { OutboxFailure } from "./failure.ts";
import type { Place } from "./place.ts";

/** How long a statement in the database of a user may take there, and until its answer is here. */
export const statementTime: Millis = 10 * second;
const answerTime: Millis = 15 * second;

/** The bytes of a login, and of the answer to a statement that returns few rows. */
const smallAnswer = 1024 * 1024;
/** The rows and results of one answer that are kept, and the columns of a row. */
const maxKept = 2_000;
const maxColumns = 50;

/** The types of columns that are converted: boolean, bytea, int4, float8 and jsonb. Others stay text. */
const convertedTypes: ReadonlySet<number> = new Set([16, 17, 23, 701, 3802]);
const getTypeParser = (type: number): ((text: string) => unknown) =>
  convertedTypes.has(type) ? (types.getTypeParser(type, "text") as (text: string) => unknown) : String;

/**
 * Bounds what a database may send. A database need not obey the limits in the statements.
 */
export class AnswerBudget {
  readonly #socket: Socket;
  #bytes = smallAnswer;
  #kept = maxKept;
  /** Why the connection was closed, or null. */
  failure: OutboxFailure | null = null;

  constructor(socket: Socket) {
    this.#socket = socket;
  }

  /** Begins a statement. `bytes`: the maximum size of its answer. */
  begin(bytes = smallAnswer): void {
    this.#bytes = bytes;
    this.#kept = maxKept;
  }

  /** Throws `OutboxFailure` if the answer had more than it may have, and ended before the connection. */
  assertEnough(): void {
    if (this.failure) throw this.failure;
  }

  /** Counts the bytes that a stream receives. */
  watchBytes(stream: Duplex): void {
    stream.on("data", (chunk: Buffer) => {
      this.#bytes -= chunk.length;
      if (this.#bytes < 0) this.#close(stream);
    });
  }

  /** Counts what the driver keeps. Without fields, it drops the rows that follow. */
  watchParts({ connection }: Client): void {
    const count = (): void => {
      if (--this.#kept < 0) this.#close(connection.stream);
    };
    for (const event of ["dataRow", "commandComplete"]) connection.on(event, count);
    connection.on("rowDescription", (description: { fields: unknown[] }) => {
      count();
      if (description.fields.length <= maxColumns && this.#kept >= 0) return;
      description.fields = [];
      this.#close(connection.stream);
    });
  }

  #close(stream: Duplex): void {
    this.failure ??= new OutboxFailure("the database answers with more than was asked for");
    stream.destroy(this.failure);
    this.#socket.destroy();
  }
}

/** Creates a client for an open socket. It reads nothing from the environment or from files. */
export function createClient(
  { tls, password, ...place }: Place,
  { socket, authorities, budget }: { socket: Socket; authorities: readonly string[]; budget: AnswerBudget },
): Client {
  const config: ClientConfig & { sslnegotiation: string } = {
    ...place,
    // With a function, the driver never looks for a file with passwords.
    password: () => password,
    application_name: "waypost outbox",
    client_encoding: "UTF8",
    sslnegotiation: "postgres",
    ssl: tls !== "off" && {
      rejectUnauthorized: tls === "verified",
      ...(authorities.length > 0 && { ca: [...getCACertificates("default"), ...authorities] }),
    },
    keepAlive: true,
    connectionTimeoutMillis: statementTime,
    query_timeout: answerTime,
    types: { getTypeParser: getTypeParser as typeof types.getTypeParser },
    stream: () => asUnconnected(socket),
  };
  const client = new Client(config);
  // The driver replaces empty ones by variables of the environment, so they are removed afterwards.
  const parameters = Reflect.get(client, "connectionParameters") as Record<string, unknown>;
  for (const name of ["options", "replication"]) parameters[name] = undefined;
  Reflect.set(client, "replication", undefined);
  client.on("error", () => undefined);
  budget.watchBytes(socket);
  budget.watchParts(client);
  client.connection.on("sslconnect", () => budget.watchBytes(client.connection.stream));
  return client;
}

/** Returns an open socket that reports a connection when the driver asks it to connect. */
function asUnconnected(socket: Socket): Socket {
  socket.connect = () => {
    process.nextTick(() => socket.emit("connect"));
    return socket;
  };
  return socket;
}
