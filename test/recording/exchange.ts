import type { Agent } from "node:http";
import { request } from "node:http";

/** A header line. */
export type Header = readonly [name: string, value: string];

/** `chunked`: the body is sent in chunks, which the fast path for publishes leaves to the framework. */
export type Sent = {
  method: string;
  path: string;
  headers: Readonly<Record<string, string>>;
  body: string | Buffer;
  chunked: boolean;
};

/** A response with its body as text. */
export type Reply = { status: number; headers: readonly Header[]; text: string };

/** Sends a request with its path exactly as written. Headers of the response keep their case. */
export function exchange(origin: string, agent: Agent, sent: Sent): Promise<Reply> {
  const { method, path, headers, body, chunked } = sent;
  const { hostname, port } = new URL(origin);
  const length: Record<string, string> = chunked
    ? { "transfer-encoding": "chunked" }
    : { "content-length": String(Buffer.byteLength(body)) };
  return new Promise((resolve, reject) => {
    const outgoing = request(
      {
        hostname,
        port,
        agent,
        method,
        path,
        headers: { ...headers, ...length },
      },
      (incoming) => {
        const chunks: Buffer[] = [];
        incoming.on("data", (chunk: Buffer) => chunks.push(chunk));
        incoming.on("error", reject);
        incoming.on("end", () =>
          resolve({
            status: incoming.statusCode ?? 0,
            headers: toPairs(incoming.rawHeaders),
            text: Buffer.concat(chunks).toString(),
          }),
        );
      },
    );
    outgoing.on("error", reject);
    outgoing.end(body);
  });
}

/** Returns raw headers as pairs of name and value, sorted by name. */
export function toPairs(raw: readonly string[]): Header[] {
  const pairs = Array.from(
    {
      length: raw.length / 2,
    },
    (_none, at): Header => [raw[2 * at] ?? "", raw[2 * at + 1] ?? ""],
  );
  return pairs.sort(([one], [other]) => compareText(one.toLowerCase(), other.toLowerCase()));
}

/** Orders texts by their code units, the same on every machine. */
export const compareText = (one: string, other: string): number => (one < other ? -1 : Number(one > other));
