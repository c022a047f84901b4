/** The process that is measured: a whole server whose costs are counted. Its parent sends it questions. */
import { openSync, readSync } from "node:fs";
import { join } from "node:path";
import { advance, type Costs, readCosts, resetCosts, untilQuiet, watchCommits } from "./costs.ts";

/** The store of the server: a folder, or a database. */
export type Start = { data: string; databaseUrl: string };

const [{ default: pino }, { readConfig }, { serve }, { developmentAccounts }] = await Promise.all([
  import("pino"),
  import("../../src/settings/config.ts"),
  import("../../src/server/serve.ts"),
  import("../../src/settings/credentials.ts"),
]);

let pages = 0;

/** The questions of the parent. */
const answers = {
  async start({ data, databaseUrl }: Start): Promise<{ port: number; token: string }> {
    const flags = { port: "0", data, databaseUrl, egressAllow: "127.0.0.0/8", console: "off" };
    const account = developmentAccounts[0];
    if (!account) throw new Error("no development account");
    const settings = readConfig(flags, {});
    const log = pino({ level: "error" }, pino.destination({ fd: 2, sync: true }));
    const { url } = await serve(settings, { log, firstAccounts: () => [account] });
    if (databaseUrl === "") countPages(join(data, "waypost.db-shm"));
    return { port: Number(new URL(url).port), token: account.token };
  },
  async quiet(turns: number): Promise<void> {
    await untilQuiet(turns);
  },
  async advance(by: number): Promise<void> {
    advance(by);
  },
  async reset(): Promise<void> {
    pages = 0;
    resetCosts();
  },
  async read(): Promise<Costs> {
    return { ...readCosts(), pages, logBytes: 0 };
  },
};

/** The questions, with their parameters and results. */
export type ServerAnswers = typeof answers;

/**
 * Counts the pages that each commit writes, by the index of the write-ahead log. Its format is part of
 * SQLite's file format. The number of the last frame is at 16. At 32 is a salt that each restart of the log
 * changes.
 */
function countPages(path: string): void {
  const file = openSync(path, "r");
  const header = Buffer.alloc(48);
  let frame = 0;
  let salt = "";
  watchCommits(() => {
    readSync(file, header, 0, header.length, 0);
    const lastFrame = header.readUint32LE(16);
    const lastSalt = header.toString("hex", 32, 40);
    pages += lastSalt === salt ? lastFrame - frame : lastFrame;
    frame = lastFrame;
    salt = lastSalt;
  });
}

process.on("message", ({ id, name, input }: { id: number; name: keyof ServerAnswers; input: never }) => {
  answers[name](input).then(
    (result) => process.send?.({ id, result }),
    (error: unknown) => process.send?.({ id, error: String(error instanceof Error ? error.stack : error) }),
  );
});
process.once("disconnect", () => process.exit());
