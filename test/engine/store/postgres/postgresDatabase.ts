import { Client } from "pg";
import type { Store } from "../../../../src/engine/store/store.ts";
import { postgresStore } from "../../../../src/engine/store/postgres/database.ts";
import { freshDatabase } from "../../../postgres.ts";
import { createRandom } from "../createRandom.ts";
import type { OpenStore, TestClock } from "../storeFixture.ts";
import { closeAfterTest, createSteppedClock } from "../storeFixture.ts";

/** Opens a node on a database, with the time of the test. */
export const openNode = (
  url: string,
  clock: TestClock,
  { node = "nod_a", seed = 1, version = "1.2.3" } = {},
): Promise<Store> =>
  postgresStore({
    url,
    node,
    version,
    random: createRandom(seed),
    clock: createSteppedClock(clock),
    now: () => clock.now,
  });

/** The wait for an announcement: less than the half minute after which a node looks without one. */
export const announced = { timeout: 20_000 } as const;

/** Runs one statement on its own connection. */
export async function ask(url: string, sql: string): Promise<Record<string, unknown>[]> {
  const client = new Client({ connectionString: url });
  await client.connect();
  try {
    return (await client.query(sql)).rows;
  } finally {
    await client.end();
  }
}

/**
 * Opens stores on a database that sorts by the rules of a language, not by bytes. Nothing that depends on the
 * order of ids may be affected. Each opened store finds the database empty.
 */
export function languageDatabase(): OpenStore {
  let made: Promise<string> | null = null;
  return async (clock, node) => {
    made ??= createLanguageDatabase();
    const url = await made;
    await ask(url, `drop schema public cascade; create schema public`);
    return closeAfterTest(await openNode(url, clock, { node }));
  };
}

async function createLanguageDatabase(): Promise<string> {
  const url = new URL(await freshDatabase());
  const name = `${url.pathname.slice(1)}_language`;
  await ask(url.href, `create database ${name} template template0 locale_provider icu icu_locale 'en-US'`);
  url.pathname = `/${name}`;
  return url.href;
}
