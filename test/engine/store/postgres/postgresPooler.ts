import type { Socket } from "node:net";
import { connect, createServer } from "node:net";
import { createMessageSplitter, listenAsProxy } from "./postgresProxy.ts";

type PooledConnection = { socket: Socket; borrower: Client | null };
/** `unanswered` is the number of replies that are still to come, each ending with "ready for query". */
type Client = { socket: Socket; lent: PooledConnection | null; unanswered: number; waiting: Buffer[] };

/**
 * Starts a pooler that lends a few PostgreSQL connections for one transaction at a time, like PgBouncer with
 * `pool_mode = transaction`, and returns its URL. The connection returned last is lent first. Like PgBouncer,
 * it does not report what a transaction leaves behind on a connection. It accepts all startup parameters;
 * PgBouncer refuses some (`ignore_startup_parameters`).
 */
export async function startPooler(url: string, { connections = 3 } = {}): Promise<string> {
  const { hostname, port } = new URL(url);
  const sockets = new Set<Socket>();
  const idle: PooledConnection[] = [];
  const inLine: Client[] = [];
  let opened: Promise<Buffer> | null = null;

  const kept = (socket: Socket): Socket => {
    sockets.add(socket);
    // Without this, small replies would wait for each other.
    return socket.setNoDelay().on("error", () => socket.destroy());
  };
  const lend = (client: Client): void => {
    const lent = idle.pop();
    if (!lent) return void inLine.push(client);
    client.lent = lent;
    lent.borrower = client;
    for (const message of client.waiting.splice(0)) lent.socket.write(message);
  };
  const takeBack = (lent: PooledConnection): void => {
    if (lent.borrower) lent.borrower.lent = null;
    lent.borrower = null;
    idle.push(lent);
    const next = inLine.shift();
    if (next) lend(next);
  };
  /** Opens a connection, and returns the database's reply to the startup message. */
  const open = async (greeting: Buffer): Promise<Buffer> => {
    const socket = kept(connect(Number(port), hostname));
    const lent: PooledConnection = { socket, borrower: null };
    return new Promise((resolve) => {
      let welcome: Buffer[] | null = [];
      const take = (message: Buffer, type: string): void => {
        welcome?.push(message);
        const client = lent.borrower;
        client?.socket.write(message);
        if (type !== "Z") return;
        if (welcome) resolve(Buffer.concat(welcome));
        welcome = null;
        if (client) client.unanswered--;
        if (message.at(-1) === idleState && !client?.unanswered) takeBack(lent);
      };
      socket.on("data", createMessageSplitter(take));
      socket.write(greeting);
    });
  };
  const server = createServer((socket) => {
    const client: Client = { socket: kept(socket), lent: null, unanswered: 0, waiting: [] };
    let isBegun = false;
    const take = (message: Buffer, type: string): void => {
      if (!isBegun) {
        isBegun = true;
        opened ??= Promise.all(
          Array.from({ length: connections }, () => open(simplifyGreeting(message))),
        ).then(([welcome]) => welcome ?? message);
        return void opened.then((welcome) => socket.write(welcome));
      }
      if (type === "X") return void socket.end();
      if (type === "Q" || type === "S") client.unanswered++;
      if (client.lent) return void client.lent.socket.write(message);
      client.waiting.push(message);
      if (client.waiting.length === 1) lend(client);
    };
    socket.on("data", createMessageSplitter(take, { hasGreeting: true }));
  });
  return listenAsProxy(server, { url, sockets });
}

const idleState = "I".charCodeAt(0);

/** Returns the startup message with only the user and the database. */
function simplifyGreeting(greeting: Buffer): Buffer {
  const words = greeting.toString("utf8", 8).split("\0");
  const pairs = words.flatMap((name, at) =>
    at % 2 === 0 && ["user", "database"].includes(name) ? [`${name}\0${words[at + 1]}\0`] : [],
  );
  const content = Buffer.from(`${pairs.join("")}\0`);
  const head = Buffer.from(greeting.subarray(0, 8));
  head.writeInt32BE(head.length + content.length, 0);
  return Buffer.concat([head, content]);
}
