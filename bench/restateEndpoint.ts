/**
 * A minimal service of Restate, in its own process. It speaks version 5 of Restate's service protocol without
 * the SDK, so that the cost of the SDK is not measured. It knows only a run that begins and takes its steps.
 */
import { createServer, type ServerHttp2Stream } from "node:http2";
import type { AddressInfo } from "node:net";
import { serveDriver } from "./benchProcess.ts";
import { registerRestate } from "./restateRegistration.ts";
import { stepAnswers, takeSteps } from "./stepTurn.ts";

/** The types of messages. Each message has a head of 8 bytes: its type, flags, and its length. */
const types = {
  start: 0x0000,
  end: 0x0003,
  proposeResult: 0x0005,
  input: 0x0400,
  output: 0x0401,
  run: 0x0411,
  runCompleted: 0x8011,
} as const;
const headBytes = 8;

const manifest = {
  protocolMode: "BIDI_STREAM",
  minProtocolVersion: 5,
  maxProtocolVersion: 5,
  services: [{ name: "benchMinimal", ty: "SERVICE", handlers: [{ name: "run" }] }],
};

const answers = {
  ...stepAnswers,
  /** Listens, and registers the service when the server is ready. */
  listen: async ({ adminPort }: { folder: string; adminPort: number }): Promise<void> => {
    const server = createServer();
    server.on("stream", (stream, headers) => {
      if (headers[":path"] === "/discover") return describe(stream);
      stream.respond({ ":status": 200, "content-type": "application/vnd.restate.invocation.v5" });
      const run = new Invocation(stream);
      run.end().catch((error: unknown) => {
        console.error(error);
        stream.destroy();
      });
    });
    await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", 4096, resolve));
    const { port } = server.address() as AddressInfo;
    await registerRestate(`http://127.0.0.1:${port}`, adminPort);
  },
};

function describe(stream: ServerHttp2Stream): void {
  stream.respond({
    ":status": 200,
    "content-type": "application/vnd.restate.endpointmanifest.v3+json",
  });
  stream.end(JSON.stringify(manifest));
}

type Message = { type: number; body: Buffer };

/** One run: what the server sends on its stream, and what is sent back. */
class Invocation {
  readonly #stream: ServerHttp2Stream;
  #unread: Buffer = Buffer.alloc(0);
  readonly #messages: Message[] = [];
  #wake: (() => void) | null = null;

  constructor(stream: ServerHttp2Stream) {
    this.#stream = stream;
    stream.on("data", (bytes: Buffer) => this.#receive(bytes));
    stream.on("error", () => undefined);
  }

  /** Executes the run. */
  async end(): Promise<void> {
    const start = await this.#next(types.start);
    const known = readField(start, 3);
    if (known !== 1) throw new Error(`The run has ${String(known)} entries, so it has begun before.`);
    const input = readField(asBytes(readField(await this.#next(types.input), 14)), 1);
    const { steps } = JSON.parse(asBytes(input).toString()) as { steps: number };
    let id = 0;
    await takeSteps(steps, async (name, work) => {
      const result = JSON.stringify(await work());
      id++;
      this.#stream.write(
        Buffer.concat([
          frame(types.run, [numberField(11, id), bytesField(12, Buffer.from(name))]),
          frame(types.proposeResult, [numberField(1, id), bytesField(14, Buffer.from(result))]),
        ]),
      );
      const completed = readField(await this.#next(types.runCompleted), 1);
      if (completed !== id) throw new Error(`The result of ${id} came as ${String(completed)}.`);
    });
    const value = bytesField(1, Buffer.from('"done"'));
    this.#stream.end(Buffer.concat([frame(types.output, [bytesField(14, value)]), frame(types.end, [])]));
  }

  /** Returns the body of the next message, which must have this type. */
  async #next(type: number): Promise<Buffer> {
    while (this.#messages.length === 0) await new Promise<void>((resolve) => (this.#wake = resolve));
    const message = this.#messages.shift();
    if (message?.type !== type) throw new Error(`A message has the type ${message?.type}, not ${type}.`);
    return message.body;
  }

  #receive(bytes: Buffer): void {
    this.#unread = this.#unread.length === 0 ? bytes : Buffer.concat([this.#unread, bytes]);
    while (this.#unread.length >= headBytes) {
      const end = headBytes + this.#unread.readUInt32BE(4);
      if (this.#unread.length < end) break;
      this.#messages.push({
        type: this.#unread.readUInt16BE(0),
        body: this.#unread.subarray(headBytes, end),
      });
      this.#unread = this.#unread.subarray(end);
    }
    this.#wake?.();
  }
}

function frame(type: number, fields: readonly Buffer[]): Buffer {
  const head = Buffer.alloc(headBytes);
  head.writeUInt16BE(type, 0);
  const body = Buffer.concat(fields);
  head.writeUInt32BE(body.length, 4);
  return Buffer.concat([head, body]);
}

// Fields of Protocol Buffers: a key (the number of the field, and its wire type in three bits) and a value.

const numberField = (field: number, value: number): Buffer =>
  Buffer.from([...variable(field * 8), ...variable(value)]);

const bytesField = (field: number, value: Buffer): Buffer =>
  Buffer.concat([Buffer.from([...variable(field * 8 + 2), ...variable(value.length)]), value]);

/** Returns a whole number in groups of seven bits, the lowest first. */
function variable(value: number): number[] {
  const bytes: number[] = [];
  for (let rest = value; ; rest = Math.floor(rest / 128)) {
    if (rest < 128) return [...bytes, rest];
    bytes.push((rest % 128) + 128);
  }
}

/** Returns a field of a message, or undefined if the message does not have the field. */
function readField(message: Buffer, wanted: number): number | Buffer | undefined {
  let at = 0;
  const readNumber = (): number => {
    for (let value = 0, factor = 1; ; factor *= 128) {
      const byte = message[at++] ?? 0;
      value += (byte % 128) * factor;
      if (byte < 128) return value;
    }
  };
  while (at < message.length) {
    const key = readNumber();
    const [field, wire] = [Math.floor(key / 8), key % 8];
    let value: number | Buffer;
    if (wire === 0) value = readNumber();
    else {
      const length = wire === 2 ? readNumber() : wire === 1 ? 8 : 4;
      value = message.subarray(at, at + length);
      at += length;
    }
    if (field === wanted) return value;
  }
  return undefined;
}

function asBytes(value: number | Buffer | undefined): Buffer {
  if (value instanceof Buffer) return value;
  throw new Error("A message has no such bytes.");
}

serveDriver(answers);
