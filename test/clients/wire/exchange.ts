import { request } from "node:http";
import { expect } from "vitest";
import type { z } from "zod";
import { eventually } from "../clientTestServer.ts";

/** Header lines in the order and the case in which a client writes them. A name may occur more than once. */
export type Lines = readonly (readonly [name: string, value: string])[];

/** A request before the client adds its own header lines. */
export type Request = { method: string; path: string; headers: Lines; body: string | undefined };

/** Returns the header lines of a call, including those that the client writes itself. */
export type Dialect = (host: string, token: string, request: Request) => Lines;

type Reply = { status: number; text: string };

/**
 * Sends a request on a new connection, exactly as written: no header is added and the path is not rewritten.
 */
export function exchange(origin: string, { method, path, headers, body }: Request): Promise<Reply> {
  const { hostname, port } = new URL(origin);
  return new Promise((resolve, reject) => {
    const options = {
      method,
      path,
      hostname,
      port,
      headers: headers.flat(),
      agent: false,
      setDefaultHeaders: false,
    };
    const outgoing = request(options, (incoming) => {
      const chunks: Buffer[] = [];
      incoming.on("data", (chunk: Buffer) => chunks.push(chunk));
      incoming.on("error", reject);
      incoming.on("end", () =>
        resolve({ status: incoming.statusCode ?? 0, text: Buffer.concat(chunks).toString() }),
      );
    });
    outgoing.on("error", reject);
    outgoing.end(body);
  });
}

/**
 * One call of a client: the request that it writes and the response that it reads. `{name}` is replaced with
 * a value from the memory.
 */
export type Row = {
  /** The call as a user of the client knows it. */
  call: string;
  /** The method and the path. */
  send: string;
  headers?: Readonly<Record<string, string>>;
  body?: string;
  /** The one accepted status. If it is not set, any status below 300 is accepted. */
  status?: number;
  /**
   * The fields and types without which the client's parser fails. If it is not set, the client does not read
   * the body.
   */
  reads?: z.ZodType;
  /** Part of the response. If `await` is set, the call is repeated until the response has it. */
  gives?: unknown;
  await?: boolean;
  /** Adds values of the response to the memory. */
  keep?: (response: never) => Memory;
};

/** Values of earlier responses, by name, that later calls refer to. */
export type Memory = Record<string, string>;

type Account = { url: string; token: string };

/** The calls to send, and the values that their texts may refer to. */
type Replay = { rows: readonly Row[]; memory?: Memory };

/**
 * Sends the calls one after another and checks each response as the client would. The memory contains
 * `later`, a Unix time in one hour.
 */
export async function expectReplay(
  dialect: Dialect,
  account: Account,
  { rows, memory = {} }: Replay,
): Promise<void> {
  const known: Memory = { later: String(Math.ceil(Date.now() / 1000) + 3600), ...memory };
  for (const row of rows) {
    const once = () => send(dialect, account, { row, memory: known });
    const reply = row.await
      ? await eventually(once, ({ text }) => fits(parsed(text), filled(row.gives, known)))
      : await once();
    const about = `${row.call}: ${row.send} returned ${reply.status} ${reply.text}`;
    if (row.status === undefined) expect(reply.status, about).toBeLessThan(300);
    else expect(reply.status, about).toBe(row.status);
    const response = parsed(reply.text);
    if (row.reads) expect(row.reads.safeParse(response).error?.issues ?? [], about).toEqual([]);
    if (row.gives !== undefined) expectPart(response, filled(row.gives, known), about);
    Object.assign(known, row.keep?.(response as never));
  }
}

type Call = { row: Row; memory: Memory };

function send(dialect: Dialect, { url, token }: Account, { row, memory }: Call): Promise<Reply> {
  const [method = "", path = ""] = text(row.send, memory).split(" ");
  const headers = Object.entries(row.headers ?? {}).map(
    ([name, value]) => [name, text(value, memory)] as const,
  );
  const body = row.body === undefined ? undefined : text(row.body, memory);
  const request = { method, path, headers, body };
  return exchange(url, { ...request, headers: dialect(new URL(url).host, token, request) });
}

function expectPart(response: unknown, expected: unknown, about = ""): void {
  if (typeof expected === "object" && expected !== null) expect(response, about).toMatchObject(expected);
  else expect(response, about).toBe(expected);
}

function fits(response: unknown, expected: unknown): boolean {
  try {
    expectPart(response, expected);
    return true;
  } catch {
    return false;
  }
}

const parsed = (text: string): unknown => (/^[[{]/.test(text) ? JSON.parse(text) : text);

const text = (template: string, memory: Memory): string =>
  template.replace(/\{(\w+)\}/g, (whole, name: string) => memory[name] ?? whole);

/** Returns the expected value with the values of the memory. Matchers of the test library stay unchanged. */
function filled(expected: unknown, memory: Memory): unknown {
  if (typeof expected === "string") return text(expected, memory);
  if (Array.isArray(expected)) return expected.map((one) => filled(one, memory));
  if (expected === null || typeof expected !== "object" || "asymmetricMatch" in expected) return expected;
  return Object.fromEntries(Object.entries(expected).map(([name, value]) => [name, filled(value, memory)]));
}
