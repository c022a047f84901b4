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
import { readConfig } from "../../src/server/config.ts";
import { makeFirstAccount } from "../../src/server/credentials.ts";
import { freshDatabase } from "../postgres.ts";
import type { Arrival } from "../process/waypost.ts";
import { serve } from "../../src/server/serve.ts";
import { startDestination } from "../process/waypost.ts";

type ClientConfig = NonNullable<ConstructorParameters<typeof Client>[0]>;

/** Somebody with an account that nobody else uses, so that lists begin empty and tests cannot meet. */
export type TestUser = {
  url: string;
  client: Client;
  token: string;
  receiver: Receiver;
  /** A client for the same account that is set up differently. */
  clientWith(config: ClientConfig): Client;
};

/** The whole server, with whatever store it can have. */
export type ClientTestServer = { url: string; createUser(): TestUser; close(): Promise<void> };

const accountsPerServer = 150;

/** Starts the whole server within this process. Close it when it is no longer needed. `environment`: settings that are no flags. */
export async function startClientTestServer(
  store: "SQLite" | "PostgreSQL",
  more: Record<string, string> = {},
  environment: Record<string, string> = {},
): Promise<ClientTestServer> {
  const data = mkdtempSync(join(tmpdir(), "waypost-clients-"));
  const settings = readConfig(
    { port: "0", data, egressAllow: "127.0.0.0/8", ...(store === "PostgreSQL" ? { databaseUrl: await freshDatabase() } : {}), ...more },
    environment,
  );
  const secret = (): string => `sig_${randomUUID()}`;
  const firstAccounts = () => Array.from({ length: accountsPerServer }, () => makeFirstAccount(randomUUID(), secret));
  const { url, accounts, stop } = await serve(settings, { log: pino({ level: "silent" }), firstAccounts });
  const unused = [...accounts];
  return {
    url,
    createUser: () => {
      const account = unused.pop();
      if (!account) throw new Error(`there are more than ${accountsPerServer} tests: make more accounts`);
      const { token, signingKeys } = account;
      const clientWith = (config: ClientConfig): Client => new Client({ baseUrl: url, token, ...config });
      const receiver = new Receiver({ currentSigningKey: signingKeys.current, nextSigningKey: signingKeys.next });
      return { url, token, receiver, clientWith, client: clientWith({}) };
    },
    close: async () => {
      await stop();
      rmSync(data, { recursive: true, force: true });
    },
  };
}

/** A destination whose arrivals the receiver of the client package has verified, all of them. */
export async function startVerifyingDestination({ receiver }: Pick<TestUser, "receiver">, answer?: Parameters<typeof startDestination>[0]) {
  const destination = await startDestination(answer);
  const until = async (enough: (arrivals: readonly Arrival[]) => boolean): Promise<readonly Arrival[]> => {
    await destination.until(enough);
    await Promise.all(destination.arrivals.map((arrival) => verify(receiver, arrival, destination.url)));
    return destination.arrivals;
  };
  return { ...destination, until, first: async () => (await until(({ length }) => length > 0))[0] as Arrival };
}

function verify(receiver: Receiver, { headers, body, path }: Arrival, origin: string): Promise<boolean> {
  const signature = String(headers["upstash-signature"]);
  // What is signed is the destination as it was given: here the bare address for the path "/".
  const url = path === "/" ? origin : `${origin}${path}`;
  return receiver.verify({ signature, body: body.toString(), url, upstashRegion: String(headers["upstash-region"]) });
}

/** A destination that answers nobody until it is told to. `most` tells how many waited at once so far. */
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
    /** Resolves as soon as so many have come. */
    until: async (count: number): Promise<void> => {
      while (came < count) await once(news, "came");
    },
    /** Answers all who wait. */
    release: (): void => waiting.splice(0).forEach((response) => void response.end()),
  };
}

/** Asks again until the answer will do: what follows a delivery is stored a moment after it. */
export async function eventually<T>(ask: () => Promise<T>, isDone: (value: T) => boolean): Promise<T> {
  for (;;) {
    const value = await ask();
    if (isDone(value)) return value;
    await new Promise((resolve) => setTimeout(resolve, 10));
  }
}

/** A destination that nobody is asked for in a test, because the message waits. */
export const delayedDestination = { url: "https://example.com/later", delay: 3600 } as const;
