import { mkdirSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { DatabaseSync } from "node:sqlite";
import type { Damage } from "../../../../src/engine/store/sqlite/fileCheck.ts";
import { makeKeyLine, readKeyRing, withChecksum } from "../../../../src/engine/store/layout/keyRing.ts";
import { openSqlite } from "../../../../src/engine/store/sqlite/database.ts";
import { sqliteStore } from "../../../../src/engine/store/sqlite/sqliteStore.ts";
import type { Store } from "../../../../src/engine/store/store.ts";
import { StorageRefused } from "../../../../src/engine/store/layout/storageErrors.ts";
import { createRandom } from "../createRandom.ts";
import { createSource, createTestFolder, StoreFixture, TestClock } from "../storeFixture.ts";
import { fillStore, fingerprint, readContents, sendAll } from "./storeContents.ts";

// Damages the files of a store at random places, opens it like a server, and inspects everything that it
// reports and sends.

/**
 * The accepted content: JSON of each object by its name, whether it was stored before the last checkpoint,
 * and what may be sent.
 */
type AcceptedContent = {
  things: Map<string, { text: string; isCheckpointed: boolean }>;
  sendable: ReadonlySet<string>;
  due: number;
};
type Files = { database: Buffer; log: Buffer };
type Page = { name: string; type: string };
/**
 * A store to damage. In `files`, half of it is in the log; in `checkpointed`, all of it is in the database.
 */
export type Template = {
  files: Files;
  checkpointed: Files;
  accepted: AcceptedContent;
  pages: ReadonlyMap<number, Page>;
  pageBytes: number;
  keys: string;
  now: number;
};

/**
 * The result of one round: what noticed the damage, what was damaged, and the faults. There must be no
 * faults.
 */
export type DamageRound = { noticed: string; where: string; faults: string[] };

/**
 * Creates a store with messages, dead letters, schedules, URL groups and runs. Half of it is in the database
 * file, half in the log.
 */
export async function createTemplate(seed: number): Promise<Template> {
  const path = join(createTestFolder(), "store.db");
  const clock = new TestClock();
  const fixture = new StoreFixture(
    await sqliteStore(path, createSource(clock, "nod_a", seed)),
    clock,
    "nod_a",
  );
  const random = createRandom(seed);
  await fixture.account();
  const before = await fillStore(fixture, random, "f");
  const checkpointed = new Set((await readContents(fixture.store)).keys());
  const tool = openSqlite(path);
  await tool.connection.query("pragma wal_checkpoint(truncate)", []);
  before.push(...(await fillStore(fixture, random, "l")));
  const files = { database: readFileSync(path), log: readFileSync(`${path}-wal`) };
  const things = await readContents(fixture.store);
  await tool.connection.query("pragma wal_checkpoint(truncate)", []);
  const pages = readPages(path);
  const pageBytes = Number((await tool.connection.query("pragma page_size", []))[0]?.page_size);
  const whole = { database: readFileSync(path), log: Buffer.alloc(0) };
  tool.close();
  const now = clock.now;
  const { sent } = await sendAll(fixture);
  await fixture.store.close();
  clock.now = now;
  const accepted = {
    things: new Map(
      [...things].map(([name, text]) => [name, { text, isCheckpointed: checkpointed.has(name) }]),
    ),
    sendable: new Set([...before, ...sent].map(fingerprint)),
    due: sent.length,
  };
  return {
    files,
    checkpointed: whole,
    accepted,
    pages,
    pageBytes,
    keys: withChecksum(`# The keys\n${makeKeyLine(1)}\n`),
    now,
  };
}

/** Returns the table or index of each page. */
function readPages(path: string): Map<number, Page> {
  const database = new DatabaseSync(path, { readOnly: true });
  const owners = new Map(
    database
      .prepare("select name, tbl_name from sqlite_schema")
      .all()
      .map(({ name, tbl_name: owner }) => [String(name), String(owner)]),
  );
  const rows = database.prepare("select name, pageno, pagetype from dbstat").all();
  database.close();
  return new Map(
    rows.map(({ name, pageno, pagetype }) => [
      Number(pageno),
      {
        name:
          owners.get(String(name)) === String(name)
            ? String(name)
            : `index of ${owners.get(String(name)) ?? "all"}`,
        type: String(pagetype),
      },
    ]),
  );
}

type DamagePlace = {
  what: "database" | "log" | "keys";
  where: string;
  page: number | null;
  files: Files;
  damage(files: Files): void;
  mayLose(name: string): boolean;
};

/** Picks a random damage of the database or its log. */
function pickDamage(template: Template, random: () => number): DamagePlace {
  const { pageBytes, pages, accepted } = template;
  const below = (max: number): number => Math.floor(random() * max);
  const isLate = (name: string): boolean => !accepted.things.get(name)?.isCheckpointed;
  const kind = random();
  const files = kind < 0.4 && kind >= 0.05 ? template.files : template.checkpointed;
  if (kind < 0.1) {
    const left = 1 + below(files.database.byteLength / pageBytes - 1);
    const damage = (copy: Files): void => void (copy.database = copy.database.subarray(0, left * pageBytes));
    return { what: "database", where: "file cut short", files, page: null, damage, mayLose: () => true };
  }
  if (kind < 0.15) {
    const left = below(files.log.byteLength);
    return {
      what: "log",
      where: "log cut short",
      files,
      page: null,
      damage: (copy) => void (copy.log = copy.log.subarray(0, left)),
      mayLose: isLate,
    };
  }
  if (kind >= 0.8) return pickWideDamage(files, { pageBytes, below, isMisplaced: kind >= 0.92 });
  const what = kind < 0.4 ? "log" : "database";
  const at = below(files[what].byteLength);
  const bit = 1 << below(8);
  const damage = (copy: Files): void => void (copy[what][at] = (copy[what][at] ?? 0) ^ bit);
  if (what === "log")
    return {
      what,
      where: at < 32 ? "header of the log" : "frame of the log",
      files,
      page: null,
      damage,
      mayLose: isLate,
    };
  const page = Math.floor(at / pageBytes) + 1;
  const owner = pages.get(page);
  const image = files.database.subarray((page - 1) * pageBytes, page * pageBytes);
  // Ids are in the cells of leaf pages. Overflow and interior pages may concern any row.
  const isAny = page === 1 || owner === undefined || owner.type !== "leaf";
  const mayLose = (name: string): boolean => isAny || image.includes(name.slice(name.indexOf(" ") + 1));
  return { what, where: owner ? owner.name : "unused page", files, page, damage, mayLose };
}

/** The number of bytes that are altered at once. */
const manyBytes = 40;

type WideDamage = { pageBytes: number; below(max: number): number; isMisplaced: boolean };

/** Alters many bytes of the database, or writes one of its pages over another. */
function pickWideDamage(files: Files, { pageBytes, below, isMisplaced }: WideDamage): DamagePlace {
  const bytes = files.database.byteLength;
  const places = Array.from({ length: manyBytes }, () => [below(bytes), 1 + below(255)] as const);
  const [from, to] = [below(bytes / pageBytes) * pageBytes, (1 + below(bytes / pageBytes - 1)) * pageBytes];
  return {
    what: "database",
    where: isMisplaced ? "page over another" : `${manyBytes} bytes`,
    files,
    page: null,
    mayLose: () => true,
    damage: ({ database }) => {
      if (isMisplaced) database.copy(database, to, from, from + pageBytes);
      else for (const [at, mask] of places) database[at] = (database[at] ?? 0) ^ mask;
    },
  };
}

/** Runs one round: damages a copy of the files, opens it, reads and sends everything, and compares. */
export async function runRound(template: Template, seed: number, folder: string): Promise<DamageRound> {
  const random = createRandom(seed);
  if (random() < 0.05) return runKeyRound(template, random, folder);
  const place = pickDamage(template, random);
  const files: Files = { database: Buffer.from(place.files.database), log: Buffer.from(place.files.log) };
  place.damage(files);
  rmSync(folder, { recursive: true, force: true });
  mkdirSync(folder);
  const path = join(folder, "store.db");
  writeFileSync(path, files.database);
  writeFileSync(`${path}-wal`, files.log);
  const found: Damage[] = [];
  const clock = new TestClock(template.now);
  clock.now = template.now;
  let store: Store;
  try {
    store = await sqliteStore(path, createSource(clock, "nod_b", seed), {
      onDamage: (damage) => found.push(damage),
    });
  } catch (error) {
    const isNamed = error instanceof StorageRefused && error.message.includes(path);
    return {
      noticed: "refused at start",
      where: place.where,
      faults: isNamed ? [] : [`refused without the name of the file: ${String(error)}`],
    };
  }
  try {
    return await inspectStore(new StoreFixture(store, clock, "nod_b"), { template, place, found });
  } finally {
    await store.close();
  }
}

async function inspectStore(
  fixture: StoreFixture,
  { template, place, found }: { template: Template; place: DamagePlace; found: readonly Damage[] },
): Promise<DamageRound> {
  const { accepted } = template;
  const faults: string[] = [];
  const thrown: unknown[] = [];
  const things = await readContents(fixture.store, (error) => thrown.push(error));
  const { sent, said } = await sendAll(fixture);
  for (const error of thrown)
    if (!(error instanceof StorageRefused))
      faults.push(`a read failed: ${error instanceof Error ? (error.stack ?? "") : String(error)}`);
  const isBroken = thrown.length > 0;
  let isAnyMissing = false;
  for (const [name, { text }] of accepted.things) {
    const now = things.get(name);
    if (now === text) continue;
    if (now !== undefined && now !== "damaged") faults.push(`${name} was altered: ${now.slice(0, 300)}`);
    isAnyMissing ||= now === undefined;
    if (!isBroken && !place.mayLose(name)) faults.push(`${name} is ${now ?? "missing"}, and was not damaged`);
  }
  for (const delivery of sent)
    if (!accepted.sendable.has(fingerprint(delivery)))
      faults.push(`altered content was sent: ${fingerprint(delivery).slice(0, 300)}`);
  const isWhole = sent.length >= accepted.due && !isAnyMissing;
  const isSilent = found.length === 0 && said.length === 0 && thrown.length === 0;
  // A log without its end is like one after a power failure.
  if (place.what === "database" && isSilent && !isWhole)
    faults.push(`nothing was reported; ${sent.length} of ${accepted.due} messages were sent`);
  return { noticed: findDetection(found, said, { isWhole }), where: place.where, faults };
}

function findDetection(
  found: readonly Damage[],
  said: readonly string[],
  { isWhole }: { isWhole: boolean },
): string {
  if (found.some(({ text }) => text.includes("-wal: damaged"))) return "log check";
  if (found.some(({ text }) => text.includes("may be incomplete"))) return "content check";
  if (found.some(({ isFile }) => isFile)) return "SQLite";
  if (found.length > 0) return "checksum of a row";
  if (said.length > 0) return "contradiction between rows";
  return isWhole ? "not noticed, nothing is missing" : "not noticed, something is missing";
}

function runKeyRound({ keys }: Template, random: () => number, folder: string): DamageRound {
  rmSync(folder, { recursive: true, force: true });
  mkdirSync(folder);
  const file = join(folder, "keys");
  const copy = Buffer.from(keys);
  const at = Math.floor(random() * copy.byteLength);
  const isCut = random() < 0.3;
  if (!isCut) copy[at] = (copy[at] ?? 0) ^ (1 << Math.floor(random() * 8));
  writeFileSync(file, isCut ? copy.subarray(0, at) : copy);
  const where = isCut ? "keys, cut short" : "keys";
  try {
    const [read] = readKeyRing({ file });
    writeFileSync(file, keys);
    const [written] = readKeyRing({ file });
    return {
      noticed: "not noticed, nothing is missing",
      where,
      faults:
        read.key.equals(written.key) && read.version === written.version ? [] : ["another key was read"],
    };
  } catch (error) {
    const isNamed = error instanceof StorageRefused && error.message.includes(file);
    return {
      noticed: "refused at start",
      where,
      faults: isNamed ? [] : [`refused without the name of the file: ${String(error)}`],
    };
  }
}
