import { once } from "node:events";
import type { Server, Socket } from "node:net";
import { connect, createServer } from "node:net";
import { onTestFinished } from "vitest";

type ProxyOptions = {
  /** Returns the SQLSTATE with which a string is refused, or null to forward it to the database. */
  refuses?(text: string): string | null;
  /**
   * Reports whether a message of the database gets lost, by its type and by the application name of the
   * connection.
   */
  loses?(type: string, application: string): boolean;
};

/** Starts a proxy in front of a PostgreSQL that is reached without TLS. Returns the URL of the proxy. */
export async function startProxy(
  url: string,
  { refuses = () => null, loses = () => false }: ProxyOptions,
): Promise<string> {
  const { hostname, port } = new URL(url);
  const sockets = new Set<Socket>();
  const server = createServer((client) => {
    const database = connect(Number(port), hostname);
    for (const [one, other] of [
      [client, database],
      [database, client],
    ] as const) {
      sockets.add(one);
      one.on("error", () => other.destroy());
      one.on("close", () => other.destroy());
    }
    let isBegun = false;
    let application = "";
    client.on(
      "data",
      createMessageSplitter(
        (message, type) => {
          // The startup message has no type; it names the client.
          const code =
            isBegun && type === "Q" ? refuses(message.toString("utf8", 5, message.length - 1)) : null;
          if (!isBegun) application = /application_name\0([^\0]*)/.exec(message.toString())?.[1] ?? "";
          isBegun = true;
          if (code === null) database.write(message);
          else client.write(makeRefusal(code));
        },
        { hasGreeting: true },
      ),
    );
    database.on(
      "data",
      createMessageSplitter((message, type) => void (loses(type, application) || client.write(message))),
    );
  });
  return listenAsProxy(server, { url, sockets });
}

/**
 * Lets `server` accept connections for a database until the test ends, and then closes all of them. Returns
 * its URL.
 */
export async function listenAsProxy(
  server: Server,
  { url, sockets }: { url: string; sockets: Iterable<Socket> },
): Promise<string> {
  server.listen(0, "127.0.0.1");
  onTestFinished(() => {
    server.close();
    for (const socket of sockets) socket.destroy();
  });
  await once(server, "listening");
  const address = server.address();
  const through = new URL(url);
  through.host = `127.0.0.1:${address && typeof address === "object" ? address.port : 0}`;
  return through.href;
}

/** Splits a stream into messages: a type, and a length that includes itself but not the type. */
export function createMessageSplitter(
  take: (message: Buffer, type: string) => void,
  { hasGreeting = false } = {},
): (piece: Buffer) => void {
  let rest = Buffer.alloc(0);
  let lead = hasGreeting ? 0 : 1;
  return (piece) => {
    rest = Buffer.concat([rest, piece]);
    while (rest.length >= lead + 4 && rest.length >= lead + rest.readInt32BE(lead)) {
      const length = lead + rest.readInt32BE(lead);
      take(rest.subarray(0, length), lead === 0 ? "" : String.fromCharCode(rest[0] ?? 0));
      rest = rest.subarray(length);
      lead = 1;
    }
  };
}

/** Returns an error, followed by "ready for query". */
function makeRefusal(code: string): Buffer {
  const fields = Buffer.from(`SERROR\0VERROR\0C${code}\0Mthis is not done here\0\0`);
  return Buffer.concat([makeMessage("E", fields), makeMessage("Z", Buffer.from("I"))]);
}

function makeMessage(type: string, content: Buffer): Buffer {
  const head = Buffer.alloc(5);
  head.write(type);
  head.writeInt32BE(content.length + 4, 1);
  return Buffer.concat([head, content]);
}
