import { connect, type Socket } from "node:net";
import { fc } from "../../../seeds.ts";
import { expect, test } from "vitest";
import {
  socketReadOptions,
  type RequestCaller,
  type HttpConnection,
} from "../../../../src/engine/delivery/http/connection.ts";
import { createLongWork } from "../../../../src/engine/clock/clock.ts";
import { ConnectionPool } from "../../../../src/engine/delivery/http/pool.ts";
import { rawDestination } from "./destination.ts";

/** How a destination treats a request. Afterwards the request has ended. */
const behaviours: Record<string, (socket: Socket, answer: string) => unknown> = {
  answers: (socket, answer) => socket.write(answer),
  "answers, and closes": (socket, answer) => socket.end(answer),
  "answers, and resets": (socket, answer) => socket.write(answer, () => socket.resetAndDestroy()),
  "answers byte by byte": (socket, answer) => [...answer].forEach((byte) => socket.write(byte)),
  "answers twice": (socket, answer) => socket.write(answer + answer),
  "answers later": (socket, answer) => setTimeout(() => socket.writable && socket.write(answer), 2),
  "says something else": (socket) => socket.write("what?\r\n"),
  "stops within the answer": (socket, answer) => socket.end(answer.slice(0, -1)),
  closes: (socket) => socket.end(),
  resets: (socket) => socket.resetAndDestroy(),
};

type Moment = "never" | "waiting" | "sent" | "begins" | "continues";
type Asked = { behaviour: string; taken: Moment; size: number; again: boolean; pause: boolean };

const asked: fc.Arbitrary<Asked> = fc.record({
  behaviour: fc.constantFrom(...Object.keys(behaviours)),
  taken: fc.constantFrom<Moment>("never", "never", "never", "waiting", "sent", "begins", "continues"),
  size: fc.constantFrom(0, 10, 10_000),
  again: fc.boolean(),
  pause: fc.boolean(),
});

const listen = (): Promise<number> =>
  rawDestination((socket) => {
    let heard = "";
    socket.on("data", (bytes) => {
      heard += bytes.toString("latin1");
      for (;;) {
        const [head, name = "", behaviour = "", length = ""] =
          /^POST \/(\d+)\/(\S+) [^]*?Content-Length: (\d+)\r\n\r\n/.exec(heard) ?? [];
        if (head === undefined || heard.length < head.length + Number(length)) return;
        heard = heard.slice(head.length + Number(length));
        behaviours[decodeURIComponent(behaviour)]?.(
          socket,
          `HTTP/1.1 200 OK\r\nContent-Length: ${name.length}\r\n\r\n${name}`,
        );
      }
    });
  });

/** Sends one request and takes it back at a given moment. Returns how it ended, once. */
function sendTo(
  connections: ConnectionPool,
  port: number,
  { behaviour, taken, size, name }: Asked & { name: string },
): Promise<string> {
  return new Promise((resolve) => {
    let ended = false;
    let body = "";
    let times = 0;
    let connection: HttpConnection | null = null;
    let takeBack: (() => void) | null = null;
    const end = (how: string): void => {
      expect(ended).toBe(false);
      ended = true;
      resolve(how);
    };
    const at = (moment: Moment): void => {
      if (ended || taken !== moment) return;
      end("taken back");
      takeBack?.();
      connection?.close(null);
    };
    const caller: RequestCaller = {
      request: {
        method: "POST",
        path: `/${name}/${encodeURIComponent(behaviour)}`,
        headers: [],
        body: [new Uint8Array(size)],
      },
      onSent: (by) => {
        // A request is sent over one connection, and may be resent over another.
        expect([ended, connection === by, ++times <= 2]).toEqual([false, false, true]);
        connection = by;
        at("sent");
      },
      onResponse: () => at("begins"),
      onBody: (bytes) => {
        body += bytes.toString("latin1");
        at("continues");
      },
      onEnd: () => !ended && end(`answered ${body}`),
      onFailure: () => !ended && end("failed"),
    };
    takeBack = connections.send(new URL(`http://a.test:${port}/`), caller);
    at("waiting");
  });
}

test("each request ends once, with its own response or none, whatever a destination does", async () => {
  const port = await listen();
  const run = async (perOrigin: number, opens: readonly string[], all: readonly Asked[]): Promise<void> => {
    const sockets = new Set<Socket>();
    let tries = 0;
    const connections = new ConnectionPool({
      perOrigin,
      longWork: createLongWork(),
      connector: (_to, answer) => {
        const how = opens[tries++ % opens.length];
        if (how === "fails at once") return answer(new Error(how), null);
        if (how === "fails") return void setImmediate(() => answer(new Error(how), null));
        const socket = connect({ port, host: "127.0.0.1", ...socketReadOptions }, () => answer(null, socket));
        sockets.add(socket.on("close", () => sockets.delete(socket)));
        expect([...sockets].filter(({ destroyed }) => !destroyed).length).toBeLessThanOrEqual(perOrigin);
      },
    });
    const one = async (request: Asked, name: string): Promise<void> => {
      const end = await sendTo(connections, port, { ...request, name });
      if (end.startsWith("answered")) expect(end).toBe(`answered ${name}`);
      // Immediately, as soon as the connection may be free.
      if (request.again) await one({ ...request, again: false }, `${name}0`);
    };
    const running: Promise<void>[] = [];
    for (const [index, request] of all.entries()) {
      running.push(one(request, String(index + 1)));
      if (request.pause) await new Promise(setImmediate);
    }
    await Promise.all(running);
    connections.close();
    expect(connections.count).toBe(0);
    await expect.poll(() => [sockets.size, connections.sockets], { interval: 1 }).toEqual([0, 0]);
  };
  const opens = fc.array(fc.constantFrom("opens", "opens", "opens", "fails", "fails at once"), {
    minLength: 1,
    maxLength: 5,
  });
  await fc.assert(
    fc.asyncProperty(
      fc.integer({ min: 1, max: 3 }),
      opens,
      fc.array(asked, { minLength: 1, maxLength: 20 }),
      run,
    ),
  );
});
