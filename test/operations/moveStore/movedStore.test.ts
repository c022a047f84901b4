import { DatabaseSync } from "node:sqlite";
import { copyFileSync } from "node:fs";
import { join } from "node:path";
import { expect, test, vi } from "vitest";
import { freshDatabase } from "../../postgres.ts";
import { ask } from "../../server/nodes.ts";
import { runWaypost, startWaypost, temporaryFolder, type Process } from "../../server/waypost.ts";

// The source of a finished move has everything that the target has, so a server on each of them would send
// the same messages.

const migrateStore = (from: string, to: string, ...more: string[]) =>
  runWaypost(["migrate-store", "--from", from, "--to", to, ...more]);

const stop = async (server: Process): Promise<void> => {
  server.kill("SIGTERM");
  expect(await server.ended).toMatchObject({ code: 0 });
};

/** A store of a kind: the flags of its server, its name for a move, and a query of its tables. */
type Place = { args: string[]; store: string; run(sql: string): Promise<Record<string, unknown>[]> };

const inFolder = (data: string): Place => ({
  args: ["--data", data],
  store: `sqlite:${data}`,
  run: async (sql) => {
    const file = new DatabaseSync(join(data, "waypost.db"));
    const rows = file.prepare(sql).all();
    file.close();
    return rows;
  },
});

const inDatabase = (url: string): Place => ({
  args: ["--data", temporaryFolder(), "--database-url", url],
  store: url,
  run: (sql) => ask(url, sql),
});

/** Returns the marks of finished moves. */
const readMarks = async ({ run }: Place): Promise<string[]> =>
  (await run("select hash from store_schema where hash like 'moved%'")).map(({ hash }) => String(hash));

const places = {
  SQLite: async () => inFolder(temporaryFolder()),
  PostgreSQL: async () => inDatabase(await freshDatabase()),
};

const start = ({ args }: Place, ...more: string[]) => ["dev", "--port", "0", ...args, ...more];

/** Returns the lines of the doctor, which has nothing to say of a server that does not run. */
const runDoctor = async ({ args }: Place): Promise<string> =>
  (await runWaypost(["doctor", ...args]).ended).out;

for (const kind of ["SQLite", "PostgreSQL"] as const) {
  test(`a moved store on ${kind} does not start without --force`, { tags: "long" }, async () => {
    const source = await places[kind]();
    const target = await places[kind === "SQLite" ? "PostgreSQL" : "SQLite"]();
    await stop(await startWaypost(start(source)));
    const before = Date.now();
    const withPassword = target.store.replace("postgres@", "postgres:hushhush@");
    const moved = await migrateStore(source.store, withPassword).ended;
    expect(moved).toMatchObject({ code: 0, err: "" });
    expect(moved.out).toContain("a server starts there only with --force");

    const [mark] = await readMarks(source);
    const [, time = "", to] = /^moved at (\S+) to (.+)$/.exec(mark ?? "") ?? [];
    expect(to).toBe(target.store.replace("postgres@", ""));
    expect(Date.parse(time)).toBeGreaterThanOrEqual(before - 1000);
    expect(await readMarks(target)).toEqual([]);
    const why = `everything in this store was moved to ${to} at ${time}`;
    for (const command of ["dev", "start"]) {
      const refused = await runWaypost([command, "--port", "0", ...source.args]).ended;
      expect(refused).toMatchObject({ code: 2, err: expect.stringContaining(`waypost: ${why}`) });
      expect(refused.err).toMatch(/--force.*a second time/s);
    }

    // Tools still read it.
    expect(await runDoctor(source)).toMatch(/problem +moved +everything in this store was moved to/);
    expect(await runWaypost(["account", "list", ...source.args]).ended).toMatchObject({ code: 0 });
    expect(await runWaypost(["credentials", "defaultUser", ...source.args]).ended).toMatchObject({ code: 0 });
    // A second move needs the flag as well.
    const third = temporaryFolder();
    expect(await migrateStore(source.store, `sqlite:${third}`).ended).toMatchObject({
      code: 2,
      err: expect.stringMatching(/was moved to .*--force/s),
    });
    expect(await migrateStore(source.store, `sqlite:${third}`, "--force").ended).toMatchObject({ code: 0 });
    expect(await readMarks(source)).toEqual([expect.stringContaining(` to sqlite:${third}`)]);

    const forced = await startWaypost(start(source, "--force"));
    await stop(forced);
    expect((await forced.ended).err).toContain("was moved");
    expect(await readMarks(source)).toEqual([]);
    await stop(await startWaypost(start(source)));
    expect(await runDoctor(source)).toMatch(/ok +moved /);
  });
}

test("a copy of a moved store is marked as well", { tags: "long" }, async () => {
  const [source, target, restored] = [temporaryFolder(), temporaryFolder(), temporaryFolder()];
  await stop(await startWaypost(start(inFolder(source))));
  expect(await migrateStore(`sqlite:${source}`, `sqlite:${target}`).ended).toMatchObject({ code: 0 });
  const file = join(temporaryFolder(), "backup.db");
  expect(await runWaypost(["backup", file, "--with-keys", "--data", source]).ended).toMatchObject({
    code: 0,
  });
  expect(await runWaypost(["restore", file, "--data", restored]).ended).toMatchObject({ code: 0 });
  const refused = await runWaypost(start(inFolder(restored))).ended;
  expect(refused).toMatchObject({ code: 2, err: expect.stringContaining(`moved to sqlite:${target}`) });
  copyFileSync(join(source, "keys"), join(target, "keys"));
  await stop(await startWaypost(start(inFolder(target))));
});

/** The move of these rows takes a while. */
const manyRows = `
  insert into audit (account, id, time, action, detail)
  with recursive n (i) as (select 1 union all select i + 1 from n where i < 40000)
  select 'acc', 'aud_' || (100000 + i), i, 'x', '{}' from n`;

for (const kind of ["SQLite", "PostgreSQL"] as const) {
  test(`a killed move leaves no mark on its source on ${kind}`, { tags: "long" }, async () => {
    const source = await places[kind]();
    await stop(await startWaypost(start(source)));
    await source.run(manyRows);
    const target = temporaryFolder();
    const move = migrateStore(source.store, `sqlite:${target}`);
    await vi.waitFor(() => expect(move.out()).toMatch(/audit: 10\d{3} of/), { timeout: 60_000, interval: 5 });
    move.kill("SIGKILL");
    await move.ended;
    expect(await readMarks(source)).toEqual([]);
    expect(await runDoctor(source)).toMatch(/ok +moved /);
    expect(await runWaypost(start(inFolder(target))).ended).toMatchObject({ code: 2 });
    expect(await migrateStore(source.store, `sqlite:${target}`).ended).toMatchObject({ code: 0 });
    expect(await readMarks(source)).toHaveLength(1);
  });
}
