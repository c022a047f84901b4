import { chmodSync, chownSync, statSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { afterAll, beforeAll, expect, onTestFinished, test, vi } from "vitest";
import { postgresStore } from "../../../../src/engine/store/postgres/database.ts";
import type { Store } from "../../../../src/engine/store/store.ts";
import { Unavailable } from "../../../../src/engine/store/layout/storageErrors.ts";
import type { Postgres } from "../../../postgres.ts";
import { startPostgres } from "../../../postgres.ts";
import { createSelfSigned } from "./certificate.ts";
import { createRandom } from "../createRandom.ts";
import { announced, ask } from "./postgresDatabase.ts";
import {
  closeAfterTest,
  createTestFolder,
  createSteppedClock,
  TestClock,
  StoreFixture,
} from "../storeFixture.ts";

// A PostgreSQL that accepts connections with TLS only, with a self-signed certificate.

let postgres: Postgres;
let port: string;
const own = createSelfSigned(["localhost", "127.0.0.1"]);

beforeAll(async () => {
  postgres = await startPostgres();
  ({ port } = new URL(postgres.url));
  await speakTls(postgres.url, own);
});
afterAll(() => postgres.stop());

async function speakTls(url: string, { certificate, key }: typeof own): Promise<void> {
  const [row] = await ask(url, "show data_directory");
  const folder = String(row?.["data_directory"]);
  const { uid, gid } = statSync(folder);
  const write = (name: string, text: string): void => {
    const path = join(folder, name);
    writeFileSync(path, text);
    chmodSync(path, 0o600);
    chownSync(path, uid, gid);
  };
  write("server.crt", certificate);
  write("server.key", key);
  write("pg_hba.conf", "hostssl all all all trust\n");
  await ask(url, "alter system set ssl = on");
  await ask(url, "select pg_reload_conf()");
  await vi.waitFor(() => expect(ask(url, "select 1")).rejects.toThrow("no encryption"), { timeout: 120_000 });
}

/** Writes a certificate to a file for `sslrootcert`, and returns the path. */
function fileOf({ certificate }: { certificate: string }): string {
  const path = join(createTestFolder(), "ca.pem");
  writeFileSync(path, certificate);
  return path;
}

const urlTo = (host: string, query: string): string =>
  `postgres://postgres@${host}:${port}/postgres?${query}`;

function open(url: string, { clock = new TestClock(), node = "nod_a" } = {}): Promise<Store> {
  return postgresStore({
    url,
    node,
    random: createRandom(1),
    clock: createSteppedClock(clock),
    now: () => clock.now,
  });
}

test.each([
  ["verify-full", "localhost"],
  ["verify-full", "127.0.0.1"],
  ["require", "localhost"],
])("nodes work with sslmode=%s and sslrootcert at %s, and notify each other", async (mode, host) => {
  const url = urlTo(host, `sslmode=${mode}&sslrootcert=${fileOf(own)}`);
  const asking = urlTo("localhost", `sslmode=verify-full&sslrootcert=${fileOf(own)}`);
  await ask(asking, "drop schema public cascade; create schema public");
  const clock = new TestClock();
  const at = async (node: string) =>
    new StoreFixture(closeAfterTest(await open(url, { clock, node })), clock, node);
  const a = await at("nod_a");
  const b = await at("nod_b");
  await a.account();
  const delivery = await a.sent();
  await a.settle(delivery);
  expect(await b.states(delivery.message.id)).toEqual(["CREATED", "ACTIVE", "DELIVERED"]);
  // Without a notification, the node would look only after half a minute.
  await a.send({ delay: 500 });
  await expect.poll(() => b.dues, announced).toContain(clock.now + 500);
  const connections = await ask(
    asking,
    "select application_name as name, ssl from pg_stat_ssl join pg_stat_activity using (pid) " +
      "where application_name like 'waypost %'",
  );
  expect(new Set(connections.map(({ name }) => name))).toEqual(
    new Set(["waypost writer", "waypost reader", "waypost listener"]),
  );
  expect(connections.map(({ ssl }) => ssl)).not.toContain(false);
});

test.each([
  [
    "the certificate of another authority",
    () => `sslmode=verify-full&sslrootcert=${fileOf(createSelfSigned(["localhost"]))}`,
    /certificate.*sslrootcert=/,
  ],
  ["the public authorities", () => "sslmode=require", /certificate.*sslrootcert=/],
  ["no TLS", () => "sslmode=disable", /no encryption.*sslmode=verify-full/],
  ["a missing file", () => "sslmode=verify-full&sslrootcert=/none/ca.pem", /\/none\/ca\.pem/],
])("a connection with %s is refused, and the error says what to do", async (_, query, said) => {
  const opening = open(urlTo("localhost", query()));
  await expect(opening).rejects.toThrow(said);
  await expect(opening).rejects.toThrow(/^PostgreSQL cannot be reached: /);
  await expect(opening).rejects.toBeInstanceOf(Unavailable);
});

test("a certificate for another host is refused, unless sslmode=no-verify", async () => {
  const other = await startPostgres();
  onTestFinished(() => other.stop());
  const certified = createSelfSigned(["db.internal"]);
  await speakTls(other.url, certified);
  const at = (query: string): string =>
    `postgres://postgres@localhost:${new URL(other.url).port}/postgres?${query}`;
  await expect(open(at(`sslmode=verify-full&sslrootcert=${fileOf(certified)}`))).rejects.toThrow(
    /host name.*certificate is for/,
  );
  const store = closeAfterTest(await open(at("sslmode=no-verify")));
  expect(await store.read.accounts()).toEqual([]);
});

test("a database without TLS gets no unencrypted connection if TLS is required", async () => {
  const other = await startPostgres();
  onTestFinished(() => other.stop());
  const url = `${other.url}?sslmode=verify-full`;
  await expect(open(url)).rejects.toThrow(/does not support SSL.*ssl = on/);
});
