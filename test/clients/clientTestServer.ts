import { randomUUID } from "node:crypto";
import { EventEmitter, once } from "node:events";
import { mkdtempSync, rmSync } from "node:fs";
import { createServer } from "node:http";
import type { ServerResponse } from "node:http";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { Client, Receiver } from "@upstash/qstash";
import { pino } from "pino";
import { onTestFinished } from "vitest";
import { readConfig } from "../../src/settings/config.ts";
import { makeFirstAccount } from "../../src/settings/credentials.ts";
import { freshDatabase } from "../postgres.ts";
import type { Arrival } from "../server/waypost.ts";
import { serve } from "../../src/server/serve.ts";
import { startDestination } from "../server/waypost.ts";

type ClientConfig = NonNullable<ConstructorParameters<typeof Client>[0]>;

/** A user with a new account, so that lists are empty at first and tests do not affect each other. */
export type TestUser = {
  url: string;
  client: Client;
  token: string;
  receiver: Receiver;
  /** Returns a client of the same account with another configuration. */
  clientWith(config: ClientConfig): Client;
};

/** The whole server, with any of its stores. */
export type ClientTestServer = { url: string; createUser(): TestUser; close(): Promise<void> };

const accountsPerServer = 150;

/**
 * Starts the whole server within this process. Close it when it is no longer needed. `environment` has
 * settings that are not flags.
 */
export async function startClientTestServer(
  store: "SQLite" | "PostgreSQL",
  more: Record<string, string> = {},
  environment: Record<string, string> = {},
): Promise<ClientTestServer> {
  const data = mkdtempSync(join(tmpdir(), "waypost-clients-"));
  const settings = readConfig(
    {
      port: "0",
      data,
      egressAllow: "127.0.0.0/8",
      ...(store === "PostgreSQL" ? { databaseUrl: await freshDatabase() } : {}),
      ...more,
    },
    environment,
  );
  const secret = (): string => `sig_${randomUUID()}`;
  const firstAccounts = () =>
    Array.from({ length: accountsPerServer }, () => makeFirstAccount(randomUUID(), secret));
  const { url, accounts, stop } = await serve(settings, { log: pino({ level: "silent" }), firstAccounts });
  const unused = [...accounts];
  return {
    url,
    createUser: () => {
      const account = unused.pop();
      if (!account)
        throw new Error(`more than ${accountsPerServer} tests use this server; create more accounts`);
      const { token, signingKeys } = account;
      const clientWith = (config: ClientConfig): Client => new Client({ baseUrl: url, token, ...config });
      const receiver = new Receiver({
        currentSigningKey: signingKeys.current,
        nextSigningKey: signingKeys.next,
      });
      return { url, token, receiver, clientWith, client: clientWith({}) };
    },
    close: async () => {
      await stop();
      rmSync(data, { recursive: true, force: true });
    },
  };
}

/** Starts a destination that verifies every arriving request with the receiver of the client package. */
export async function startVerifyingDestination(
  { receiver }: Pick<TestUser, "receiver">,
  answer?: Parameters<typeof startDestination>[0],
) {
  const destination = await startDestination(answer);
  const until = async (enough: (arrivals: readonly Arrival[]) => boolean): Promise<readonly Arrival[]> => {
    await destination.until(enough);
    await Promise.all(destination.arrivals.map((arrival) => verify(receiver, arrival, destination.url)));
    return destination.arrivals;
  };
  return {
    ...destination,
    until,
    first: async () => (await until(({ length }) => length > 0))[0] as Arrival,
  };
}

function verify(receiver: Receiver, { headers, body, path }: Arrival, origin: string): Promise<boolean> {
  const signature = String(headers["upstash-signature"]);
  // The signature is of the destination as published, which may be without the path "/".
  const url = path === "/" ? origin : `${origin}${path}`;
  return receiver.verify({
    signature,
    body: body.toString(),
    url,
    upstashRegion: String(headers["upstash-region"]),
  });
}

/**
 * Starts a destination that answers no request until `release` is called. `most` is the highest number of
 * requests that waited at once so far.
 */
export async function startHeldDestination() {
  let max = 0;
  let came = 0;
  const waiting: ServerResponse[] = [];
  const news = new EventEmitter();
  const server = createServer((request, response) => {
    request.resume();
    came++;
    max = Math.max(max, waiting.push(response));
    news.emit("came");
  });
  server.listen(0, "127.0.0.1");
  await once(server, "listening");
  onTestFinished(() => void (server.closeAllConnections(), server.close()));
  const address = server.address();
  return {
    url: `http://127.0.0.1:${address && typeof address === "object" ? address.port : 0}/`,
    max: () => max,
    /** Resolves as soon as `count` requests have arrived. */
    until: async (count: number): Promise<void> => {
      while (came < count) await once(news, "came");
    },
    /** Sends a response to all waiting requests. */
    release: (): void => waiting.splice(0).forEach((response) => void response.end()),
  };
}

/**
 * Repeats a call until its result is as expected. The consequences of a delivery are stored shortly after it.
 */
export async function eventually<T>(ask: () => Promise<T>, isDone: (value: T) => boolean): Promise<T> {
  for (;;) {
    const value = await ask();
    if (isDone(value)) return value;
    await new Promise((resolve) => setTimeout(resolve, 10));
  }
}

/** A destination that receives no request during a test, because the message has a delay. */
export const delayedDestination = { url: "https://example.com/later", delay: 3600 } as const;
