import { once } from "node:events";
import type { Server, Socket } from "node:net";
import { connect, createServer } from "node:net";
import { onTestFinished } from "vitest";

type ProxyOptions = {
  /** With which code of an error a text is refused, instead of being put to the database; null: it is not. */
  refuses?(text: string): string | null;
  /** Which messages of the database get lost on the way, by their type, and by the name that the application gave on this connection. */
  loses?(type: string, application: string): boolean;
};

/** Stands between nodes and a PostgreSQL, which is talked to in clear, and answers with the URL at which it is reached. */
export async function startProxy(url: string, { refuses = () => null, loses = () => false }: ProxyOptions): Promise<string> {
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
          // The first one says who comes, and has no type.
          const code = isBegun && type === "Q" ? refuses(message.toString("utf8", 5, message.length - 1)) : null;
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

/** Opens a server that stands before a database until the test ends, with all of its connections, and answers with the URL at which that is reached. */
export async function listenAsProxy(server: Server, { url, sockets }: { url: string; sockets: Iterable<Socket> }): Promise<string> {
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

/** Puts what comes in pieces together: a type and a length, which counts itself, and not the type. */
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

/** An error, and that the database is ready for the next query. */
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
