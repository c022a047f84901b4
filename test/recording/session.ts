import { Agent } from "node:http";
import type { Line } from "./compare.ts";
import type { Arrival, Destination } from "./destination.ts";
import { startDestination } from "./destination.ts";
import type { Header, Reply } from "./exchange.ts";
import { compareText, exchange } from "./exchange.ts";
import { createNormaliser } from "./normalise.ts";
import { operatorPassword } from "./server.ts";
import { describeSignature, describeStandard } from "./signatures.ts";

/** `token`: null sends none. `basic`: name and password instead of a token. */
export type More = {
  headers?: Record<string, string>;
  body?: unknown;
  token?: string | null;
  basic?: string;
  chunked?: boolean;
  /** A list in the body that is in the order of ids, and the member that the recording sorts it by. */
  sorted?: { list: string; by: string };
};

// oxlint-disable-next-line typescript/no-explicit-any -- the script reads only the members that it needs
export type Answer = Reply & { json: any };

type Recorded = { label: string; method: string; path: string; reply: Reply };

/** The response to wait for, and the token of the requests. */
export type Expectation = { isExpected: (json: Answer["json"]) => boolean; token: string };

/** The tokens and the password of an account. */
export type Credentials = {
  id: string;
  name: string;
  token: string;
  readOnlyToken: string;
  password: string;
};

const finalStates = new Set(["DELIVERED", "FAILED", "CANCELLED", "CANCELED"]);

/** Everything that a recording has sent and received. */
export class Session {
  readonly destination: Destination;
  readonly server: string;
  readonly #agent = new Agent({ keepAlive: true, maxSockets: 4 });
  readonly #recorded: Recorded[] = [];
  readonly #secrets = new Set<string>([operatorPassword]);
  readonly #keys = new Set<string>();
  readonly #counts = new Map<string, number>();

  private constructor(server: string, destination: Destination) {
    this.server = server;
    this.destination = destination;
  }

  static async begin(server: string): Promise<Session> {
    return new Session(server, await startDestination());
  }

  end(): void {
    this.#agent.destroy();
    this.destination.close();
  }

  /** Sends a request that becomes a line of the recording. `what`: method and path. */
  async ask(area: string, what: string, more: More = {}): Promise<Answer> {
    const answer = await this.quietly(what, more);
    const { sorted } = more;
    const text = sorted === undefined ? answer.text : sortedText(answer.json, sorted);
    this.#record(area, what, { ...answer, text });
    return answer;
  }

  /** Sends the request until its response is as expected. Only the last response is recorded. */
  async eventually(area: string, what: string, expectation: Expectation): Promise<Answer> {
    const answer = await this.#quietlyUntil(what, expectation);
    this.#record(area, what, answer);
    return answer;
  }

  async #quietlyUntil(what: string, { isExpected, token }: Expectation): Promise<Answer> {
    const givenUpAt = Date.now() + 30_000;
    for (;;) {
      const answer = await this.quietly(what, { token });
      if (isExpected(answer.json)) return answer;
      if (Date.now() > givenUpAt) throw new Error(`${what} still answers ${answer.status} ${answer.text}`);
      await new Promise((resolve) => setTimeout(resolve, 5));
    }
  }

  /** Sends a request that is not recorded. */
  async quietly(what: string, more: More = {}): Promise<Answer> {
    const { headers = {}, body = "", token = null, basic, chunked = false } = more;
    const [method, path] = split(what);
    const authorization = basic === undefined ? token && `Bearer ${token}` : `Basic ${btoa(basic)}`;
    const all = authorization === null ? headers : { authorization, ...headers };
    const bytes = typeof body === "string" || Buffer.isBuffer(body) ? body : JSON.stringify(body);
    const reply = await exchange(this.server, this.#agent, {
      method,
      path,
      headers: all,
      body: bytes,
      chunked,
    });
    for (const [key] of reply.text.matchAll(/sig_[1-9A-HJ-NP-Za-z]+/g)) this.#keys.add(key);
    return { ...reply, json: toJson(reply.text) };
  }

  /** Lets a string become an id wherever it appears. */
  keepSecret(...texts: (string | undefined)[]): void {
    for (const text of texts) if (text !== undefined) this.#secrets.add(text).add(encodeURIComponent(text));
  }

  /** Waits until a message has ended. */
  async settled(messageId: string, token: string, list = "/v2/logs"): Promise<void> {
    const isFinal = (json: Answer["json"]): boolean => statesIn(json).some((state) => finalStates.has(state));
    await this.#quietlyUntil(`GET ${list}?messageId=${messageId}`, { isExpected: isFinal, token });
  }

  #record(area: string, what: string, reply: Reply): void {
    const number = (this.#counts.get(area) ?? 0) + 1;
    this.#counts.set(area, number);
    const [method, path] = split(what);
    this.#recorded.push({ label: `${area} ${number}`, method, path, reply });
  }

  get requestCount(): number {
    return this.#recorded.length;
  }

  /**
   * Returns a line of JSON for each request in its order, then one for each delivery, in the order of paths.
   */
  lines(): string[] {
    const server = new URL(this.server).host;
    const destination = new URL(this.destination.url).host;
    const places = {
      [server]: "<server>",
      [destination]: "<destination>",
      [encodeURIComponent(server)]: "<server>",
      [encodeURIComponent(destination)]: "<destination>",
    };
    const normalise = createNormaliser({
      places,
      secrets: [...this.#secrets, ...this.#keys],
      now: Date.now(),
    });
    const requests = this.#recorded.map(({ label, method, path, reply }): Line => {
      const length = Buffer.byteLength(reply.text);
      const headers = reply.headers.map(([name, value]): Header => [name, maskHeader(name, value, length)]);
      return { kind: "request", label, method, path, status: reply.status, headers, body: reply.text };
    });
    const byPath = (one: Arrival, other: Arrival): number =>
      compareText(one.path, other.path) || one.at - other.at;
    const sorted = [...this.destination.arrivals].sort(byPath);
    const counts = new Map<string, number>();
    const deliveries = sorted.map((arrival): Line => {
      const { method, path, body } = arrival;
      const number = (counts.get(path) ?? 0) + 1;
      counts.set(path, number);
      const headers = this.#describeHeaders(arrival);
      return { kind: "delivery", label: `${path} ${number}`, method, path, headers, body: toText(body) };
    });
    return [...requests, ...deliveries].map((line) => JSON.stringify(normalised(line, normalise)));
  }

  #describeHeaders(arrival: Arrival): Header[] {
    return arrival.headers.map(([name, value]): Header => {
      const keys = this.#keys;
      if (/^(svc|upstash)-signature$/i.test(name))
        return [name, describeSignature(value, arrival.body, keys)];
      if (/^webhook-signature$/i.test(name)) return [name, describeStandard(value, arrival, keys)];
      return [name, maskHeader(name, value, arrival.body.length)];
    });
  }
}

/** Replaces what differs between runs, where the name of the header tells it. */
function maskHeader(name: string, value: string, length: number): string {
  if (/^date$/i.test(name)) return "<date>";
  if (/^x-request-id$/i.test(name)) return "<request id>";
  // It is a hash of the body, which has times.
  if (/^etag$/i.test(name)) return "<etag>";
  if (/^content-length$/i.test(name)) return value === String(length) ? "<that of the body>" : value;
  if (/^(burst-ratelimit-(remaining|reset)|retry-after|ratelimit-reset)$/i.test(name)) return "<number>";
  return value;
}

const normalised = (line: Line, normalise: (text: string) => string): Line => ({
  ...line,
  label: normalise(line.label),
  path: normalise(line.path),
  headers: line.headers.map(([name, value]): Header => [name, normalise(value)]),
  body: normalise(line.body),
});

/** Returns the id of the message that a destination received, if it has one. */
export const messageIdOf = ({ headers }: Arrival): string | undefined =>
  headers.find(([name]) => /^(svc|upstash)-message-id$/i.test(name))?.[1];

function statesIn(json: Answer["json"]): string[] {
  const events = (json?.events ?? []) as { state: string }[];
  return events.map(({ state }) => state);
}

/** Method and path of a request that is written in one text. */
function split(what: string): [method: string, path: string] {
  const space = what.indexOf(" ");
  return [what.slice(0, space), what.slice(space + 1)];
}

function sortedText(json: Answer["json"], { list, by }: { list: string; by: string }): string {
  const items = json[list] as Record<string, unknown>[];
  return JSON.stringify({
    ...json,
    [list]: items.toSorted((one, other) => compareText(String(one[by]), String(other[by]))),
  });
}

/** Returns bytes as text, or in base64 if they are not text. */
function toText(body: Buffer): string {
  const text = body.toString();
  return Buffer.from(text).equals(body) ? text : `bytes ${body.toString("base64")}`;
}

function toJson(text: string): unknown {
  try {
    return JSON.parse(text) as unknown;
  } catch {
    return null;
  }
}
