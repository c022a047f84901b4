import type { Server, Socket } from "node:net";
import { createServer } from "node:net";
import { once } from "node:events";
import { onTestFinished } from "vitest";

/** The answer to a statement: rows, bytes, or null for silence. */
export type Answer = { columns: readonly Column[]; rows: readonly Values[] } | Buffer | null;
type Column = readonly [name: string, type: number];
type Values = readonly (string | null)[];

/** A fake database, and the messages of its client. */
export type Fake = {
  url: string;
  host: string;
  startups: string[];
  passwords: string[];
  statements: string[];
};

const int32 = (value: number): Buffer => {
  const bytes = Buffer.alloc(4);
  bytes.writeInt32BE(value);
  return bytes;
};
const int16 = (value: number): Buffer => int32(value).subarray(2);

/** Returns a message of the protocol of PostgreSQL. */
export const makeMessage = (type: string, ...parts: readonly Buffer[]): Buffer => {
  const body = Buffer.concat(parts);
  return Buffer.concat([Buffer.from(type), int32(body.length + 4), body]);
};

/** Returns the message that describes columns. */
export const describeColumns = (columns: readonly Column[]): Buffer =>
  makeMessage(
    "T",
    int16(columns.length),
    ...columns.map(([name, type]) =>
      Buffer.concat([
        Buffer.from(`${name}\0`),
        int32(0),
        int16(0),
        int32(type),
        int16(-1),
        int32(-1),
        int16(0),
      ]),
    ),
  );

/** Returns the message of a row. */
export const makeRow = (values: Values): Buffer =>
  makeMessage(
    "D",
    int16(values.length),
    ...values.map((value) =>
      value === null ? int32(-1) : Buffer.concat([int32(Buffer.byteLength(value)), Buffer.from(value)]),
    ),
  );

/** Ends the answer to a statement. */
export const endAnswer = Buffer.concat([
  makeMessage("C", Buffer.from("SELECT 1\0")),
  makeMessage("Z", Buffer.from("I")),
]);

const toBytes = (answer: Exclude<Answer, null>): Buffer =>
  Buffer.isBuffer(answer)
    ? answer
    : Buffer.concat([describeColumns(answer.columns), ...answer.rows.map(makeRow), endAnswer]);

/** Starts a database that answers as a test wishes. It asks for a password in plain text. */
export async function startFakePostgres(answer: (statement: string) => Answer): Promise<Fake> {
  const fake: Fake = { url: "", host: "", startups: [], passwords: [], statements: [] };
  const sockets = new Set<Socket>();
  const server: Server = createServer((socket) => {
    sockets.add(socket.on("error", () => undefined));
    let isStarted = false;
    let rest = Buffer.alloc(0);
    socket.on("data", (chunk) => {
      rest = Buffer.concat([rest, chunk]);
      if (!isStarted) {
        isStarted = true;
        fake.startups.push(rest.subarray(8).toString());
        rest = Buffer.alloc(0);
        return void socket.write(makeMessage("R", int32(3)));
      }
      while (rest.length >= 5 && rest.length > rest.readInt32BE(1)) {
        const end = 1 + rest.readInt32BE(1);
        const type = String.fromCharCode(rest[0] ?? 0);
        const body = rest.subarray(5, end - 1).toString();
        rest = rest.subarray(end);
        if (type === "p") {
          fake.passwords.push(body);
          socket.write(Buffer.concat([makeMessage("R", int32(0)), makeMessage("Z", Buffer.from("I"))]));
        } else if (type === "Q" || type === "P") {
          fake.statements.push(body);
          const found = answer(body);
          if (found !== null) socket.write(toBytes(found));
        }
      }
    });
  }).listen(0, "127.0.0.1");
  onTestFinished(() => {
    server.close();
    for (const socket of sockets) socket.destroy();
  });
  await once(server, "listening");
  const address = server.address();
  fake.host = `127.0.0.1:${typeof address === "object" ? address?.port : 0}`;
  fake.url = `postgres://shop:secret@${fake.host}/shop?sslmode=disable`;
  return fake;
}
