/**
 * The attacks of `neighbours`. Each is a function that prepares what it needs and returns the attack, which
 * runs until it is aborted.
 */
import {
  destination,
  keepConnected,
  writeForever,
  quickDestination,
  repeat,
  type Target,
  waitUntilOver,
} from "./hostile.ts";
import { pause } from "./server.ts";

/** An attack on the server. */
export type Attack = {
  /** One sentence on the attack. */
  does: string;
  /** The limit of the server that contains the attack. */
  bound: string;
  /** The unit of `sent`. */
  unit: "bytes" | "requests" | "messages";
  /** How many seconds `prepare` takes, if any. */
  prepares?: number;
  /**
   * Prepares the attack while the server is still quiet. `startsAt` is the earliest start, in Unix
   * milliseconds.
   */
  prepare(target: Target, startsAt: number): Promise<() => Promise<void>>;
};

/** A chunk of one byte, and 64 KiB of such chunks. */
const tinyChunk = "1\r\nx\r\n";
const tinyChunks = Buffer.from(tinyChunk.repeat(10_923), "latin1");
/** No retries, and a timeout longer than the bench, so that a held attempt lasts to the end. */
const heldHeaders = { "upstash-retries": "0", "upstash-timeout": "5m" };

async function chunks(target: Target): Promise<() => Promise<void>> {
  const port = await quickDestination();
  const made = await target.post(
    "/v2/sources",
    JSON.stringify({ destination: `http://127.0.0.1:${port}/`, verification: null }),
  );
  if (made === null)
    throw new Error(`The source for the attack "chunks" was refused: ${target.sent.firstRefusal}`);
  const { pathname } = new URL((JSON.parse(made) as { url: string }).url);
  const head = `POST ${pathname} HTTP/1.1\r\nHost: server\r\nTransfer-Encoding: chunked\r\n\r\n`;
  const one = (): Promise<void> =>
    keepConnected(target, (socket) => {
      socket.write(head);
      writeForever(target, socket, tinyChunks);
    });
  return async () => void (await Promise.all(Array.from({ length: 32 }, one)));
}

/** With a callback, responses are read up to 6 MiB. */
const responseBytes = 6 * 2 ** 20;

async function responses(target: Target): Promise<() => Promise<void>> {
  const sink = await quickDestination();
  const head = `HTTP/1.1 200 OK\r\nContent-Length: ${responseBytes}\r\n\r\n`;
  const body = Buffer.alloc(responseBytes - 1, "x");
  const port = await destination((socket) => {
    socket.write(head);
    socket.write(body);
  });
  const headers = { ...heldHeaders, "upstash-callback": `http://127.0.0.1:${sink}/` };
  const items = Array.from({ length: 400 }, () => ({ destination: `http://127.0.0.1:${port}/`, headers }));
  return async () => {
    await target.publish(items);
    await waitUntilOver(target);
  };
}

/** 100 KB/s over 20 connections, in bursts every 250 ms. */
const getRequest = "GET / HTTP/1.1\r\nHost: server\r\n\r\n";
const burst = { requests: Math.ceil(100_000 / 20 / 4 / getRequest.length), every: 250 };

async function pipelined(target: Target): Promise<() => Promise<void>> {
  const bytes = Buffer.from(getRequest.repeat(burst.requests), "latin1");
  const one = (): Promise<void> =>
    keepConnected(target, (socket) => {
      const send = (): void => {
        target.count(burst.requests);
        socket.write(bytes);
      };
      const timer = setInterval(send, burst.every);
      socket.on("close", () => clearInterval(timer));
      send();
    });
  return async () => void (await Promise.all(Array.from({ length: 20 }, one)));
}

async function group(target: Target): Promise<() => Promise<void>> {
  const port = await quickDestination();
  const endpoints = Array.from({ length: 100 }, (_, at) => ({ url: `http://127.0.0.1:${port}/${at}` }));
  await target.post("/v2/topics/many/endpoints", JSON.stringify({ endpoints }));
  const labels = Array.from({ length: 32 }, (_, at) => at.toString(36)).join(",");
  const items = Array.from({ length: 100 }, () => ({
    destination: "many",
    headers: { "upstash-label": labels },
  }));
  return () => repeat(target, 2, () => target.publish(items, endpoints.length));
}

const fillSeconds = 5;

async function backlog(target: Target, startsAt: number): Promise<() => Promise<void>> {
  const port = await quickDestination();
  const headers = { "upstash-not-before": String(Math.ceil(startsAt / 1e3)), "upstash-retries": "0" };
  const items = Array.from({ length: 1_000 }, () => ({ destination: `http://127.0.0.1:${port}/`, headers }));
  const until = Date.now() + fillSeconds * 1e3;
  const fill = async (): Promise<void> => {
    while (Date.now() < until) await target.publish(items);
  };
  await Promise.all([fill(), fill(), fill(), fill()]);
  return () => waitUntilOver(target);
}

async function hosts(target: Target): Promise<() => Promise<void>> {
  const port = await destination(() => undefined);
  const item = (at: number): object => ({
    destination: `http://127.${1 + Math.floor(at / 250)}.0.${1 + (at % 250)}:${port}/`,
    headers: heldHeaders,
  });
  const batches = [0, 1, 2].map((batch) =>
    Array.from({ length: 1_000 }, (_, at) => item(batch * 1_000 + at)),
  );
  return async () => {
    for (const items of batches) await target.publish(items);
    await waitUntilOver(target);
  };
}

async function dribble(target: Target): Promise<() => Promise<void>> {
  let items: object[] = [];
  const again = (): unknown => (target.isOver ? undefined : target.publish(items.slice(0, 1)));
  const port = await destination((socket) => {
    // The server closes the connection when it has read as much as it keeps. Then the next message takes its
    // place.
    socket.once("close", again);
    socket.write("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n");
    writeForever(null, socket, tinyChunks);
  });
  items = Array.from({ length: 64 }, () => ({
    destination: `http://127.0.0.1:${port}/`,
    headers: heldHeaders,
  }));
  return async () => {
    await target.publish(items);
    await waitUntilOver(target);
  };
}

async function json(target: Target): Promise<() => Promise<void>> {
  const bytes = 4 * 2 ** 20 - 1_024;
  const bodies = [`[${'{"a":1},'.repeat(Math.floor(bytes / 8))}x`, "[".repeat(bytes)];
  let sent = 0;
  return () =>
    repeat(target, 4, async () => {
      target.count(1);
      await target.post("/v2/batch", bodies[sent++ % bodies.length] ?? "");
      await pause(1);
    });
}

/** All attacks by name, in the order of the table in README.md. */
export const attacks: Record<string, Attack> = {
  chunks: {
    does: "32 connections send endless request bodies to the URL of a source, in chunks of one byte.",
    bound: "tiny chunks are copied into pieces and bounded in rate (item 1)",
    unit: "bytes",
    prepare: chunks,
  },
  responses: {
    does: "400 destinations at once send a response of 6 MiB except its last byte, and hold it.",
    bound: "responses in flight count against a limit per node and account (item 2)",
    unit: "messages",
    prepare: responses,
  },
  pipelined: {
    does: "20 connections without a token send 100 KB/s of GET requests without waiting for responses.",
    bound: "requests of a connection yield, and refused ones are limited per address (item 4)",
    unit: "requests",
    prepare: pipelined,
  },
  group: {
    does: "Two connections publish lists of 10,000 messages with 32 labels each, one after another.",
    bound: "a transaction is bounded by rows and bytes (item 5)",
    unit: "messages",
    prepare: group,
  },
  backlog: {
    does: `All messages that the server accepts in ${fillSeconds} s are due in the same second.`,
    bound: "claims are made by account in turns (item 6)",
    unit: "messages",
    prepares: fillSeconds,
    prepare: backlog,
  },
  hosts: {
    does: "3,000 hosts accept a message each and never respond.",
    bound: "the last eighth of the capacity is kept for other accounts (item 7)",
    unit: "messages",
    prepare: hosts,
  },
  dribble: {
    does: "64 destinations at once send responses in chunks of one byte.",
    bound: "chunks of a response are read in batches and bounded (item 9)",
    unit: "messages",
    prepare: dribble,
  },
  json: {
    does: "Four connections send 4 MiB of JSON that is malformed at its end, or nested four million deep.",
    bound: "positions are searched in 64 KiB only, and depth and keys are bounded (item 9)",
    unit: "requests",
    prepare: json,
  },
};
