import { Client } from "pg";
import { onTestFinished } from "vitest";
import { createEgress } from "../../../src/engine/delivery/http/egress.ts";
import type { OutboxSetting } from "../../../src/operations/outbox/outbox.ts";
import type { AccountOutbox } from "../../../src/operations/outbox/outbox.ts";
import type { RelayParts } from "../../../src/operations/outbox/relay.ts";
import { Relay } from "../../../src/operations/outbox/relay.ts";
import type { SchemaNames } from "../../../src/operations/outbox/schemaSql.ts";
import { formatSchemaSql } from "../../../src/operations/outbox/schemaSql.ts";
import { systemClock } from "../../../src/engine/clock/clock.ts";
import type { Store } from "../../../src/engine/store/store.ts";
import { hashToken } from "../../../src/api/auth/token.ts";
import { freshDatabase } from "../../postgres.ts";
import { token } from "../../api/testServer.ts";

/** The database of a user, with the outbox in it. `url` is for the server. */
export type UserDatabase = { url: string; sql: Client };

/** Opens a connection that ends with the test. */
export async function connectTo(url: string): Promise<Client> {
  const sql = new Client({ connectionString: url });
  sql.on("error", () => undefined);
  await sql.connect();
  onTestFinished(() => sql.end().catch(() => undefined));
  return sql;
}

/** Creates a database with the schema of the outbox. */
export async function openUserDatabase(
  names: Partial<SchemaNames> = {},
  server?: string,
): Promise<UserDatabase> {
  const url = await freshDatabase(server);
  const sql = await connectTo(url);
  await sql.query(formatSchemaSql({ schema: "waypost", ...names }));
  return { url: toOutboxUrl(url), sql };
}

/** Returns the URL of a database as an outbox needs it. The servers of the tests ask for no password. */
export function toOutboxUrl(text: string): string {
  const url = new URL(text);
  url.password ||= "any";
  url.searchParams.set("sslmode", "disable");
  return url.href;
}

/** Connections to databases on this machine, as an operator allows them. */
const localEgress = createEgress({ allow: ["127.0.0.0/8", "::1/128"] });

/** Returns what a relay needs of its server. */
export const relayParts = (store: Store, more: Partial<RelayParts> = {}): RelayParts => ({
  store,
  clock: systemClock,
  isShared: false,
  isOnHold: () => false,
  connect: (target) => localEgress.open({ ...target, timeout: 5_000 }),
  authorities: [],
  publishing: {},
  logFailure: (_message, error) => {
    throw error;
  },
  ...more,
});

/** Returns an outbox of the first account of a test server, with the token of the account. */
export const makeOutbox = (url: string, setting: Partial<OutboxSetting> = {}): AccountOutbox => ({
  account: "acc_1",
  allowedHosts: null,
  setting: {
    ...{ name: "shop", url, schema: "waypost", isPooled: false, owner: "own_1", createdAt: 1 },
    ...{ tokenHash: hashToken(token), tokenId: null },
    ...setting,
  },
});

/** Adds an outbox to a store, and starts its relay until the test ends. */
export async function startRelay(parts: RelayParts, outbox: AccountOutbox): Promise<Relay> {
  await parts.store.execute("setOutbox", { account: outbox.account, ...outbox.setting });
  const relay = new Relay(parts, outbox);
  relay.start();
  onTestFinished(() => relay.stop());
  return relay;
}
