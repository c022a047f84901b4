// @module-tag long
import { spawnSync } from "node:child_process";
import { existsSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { expect, test } from "vitest";
import { freshDatabase } from "../postgres.ts";
import { ask } from "../server/nodes.ts";
import { developmentToken, runWaypost, startWaypost, temporaryFolder } from "../server/waypost.ts";

const home = join(import.meta.dirname, "../..");
const script = join(home, "scripts/release/fixture.ts");

/** Makes a fixture of the present version, and returns its folder. */
function makeFixture(...store: readonly string[]): string {
  const folder = join(temporaryFolder(), "fixture");
  const made = spawnSync(process.execPath, [
    "--disable-warning=ExperimentalWarning",
    script,
    folder,
    ...store,
  ]);
  expect(made.status, made.stderr.toString()).toBe(0);
  return folder;
}

/** Expects that a held server on a store has what the fixture names. */
async function expectData(store: readonly string[], expectedFile: string): Promise<void> {
  const expected = JSON.parse(readFileSync(expectedFile, "utf8")) as Record<string, string>;
  const server = await startWaypost(["dev", "--hold", "--port", "0", ...store]);
  const read = async (path: string): Promise<unknown> => {
    const response = await fetch(`${server.url}${path}`, {
      headers: { authorization: `Bearer ${developmentToken}` },
    });
    expect(response.status, path).toBe(200);
    return response.json();
  };
  for (const name of ["delayed", "queued", "retrying", "limited", "deduplicated"])
    expect(await read(`/v2/messages/${expected[name]}`), name).toMatchObject({ messageId: expected[name] });
  expect(await read(`/v2/schedules/${expected["schedule"]}`)).toMatchObject({ cron: "0 3 * * *" });
  expect(await read("/v2/dlq")).toMatchObject({ messages: [{ messageId: expected["failed"] }] });
  expect(await read("/v2/queues/orders")).toMatchObject({ parallelism: 2 });
  expect(await read(`/v2/workflows/runs/${expected["run"]}`)).toBeDefined();
  server.kill("SIGTERM");
  expect(await server.ended).toMatchObject({ code: 0 });
}

/** The fixtures of released versions, and one of the present version, by the folder of each. */
const fixtures: [name: string, folder: (...store: readonly string[]) => string][] = [
  ["0.1.0", () => join(home, "test/fixtures/0.1.0")],
  ["the present version", makeFixture],
];

test.each(fixtures)("the folder of %s is restored, upgraded, and has what it names", async (_name, find) => {
  const folder = find();
  const data = join(temporaryFolder(), "data");
  const restored = await runWaypost(["restore", join(folder, "waypost.db"), "--data", data]).ended;
  expect(restored).toMatchObject({ code: 0, err: "" });
  await expectData(["--data", data], join(folder, "expected.json"));
});

test.each(fixtures)("the database of %s is upgraded, and has what it names", async (_name, find) => {
  const folder = find("--database-url", await freshDatabase());
  expect(existsSync(join(folder, "waypost.sql"))).toBe(true);
  const databaseUrl = await freshDatabase();
  await ask(databaseUrl, readFileSync(join(folder, "waypost.sql"), "utf8"));
  const store = ["--data", temporaryFolder(), "--database-url", databaseUrl];
  await expectData(store, join(folder, "expected.postgres.json"));
});
