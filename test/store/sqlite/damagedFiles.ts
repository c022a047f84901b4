import { mkdirSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { DatabaseSync } from "node:sqlite";
import { Claimer } from "../../../src/delivery/claimer.ts";
import type { Delivery, MessageInput } from "../../../src/core/model/message.ts";
import type { Damage } from "../../../src/store/sqlite/fileCheck.ts";
import { makeKeyLine, readKeyRing, withChecksum } from "../../../src/store/sql/keyRing.ts";
import { openSqlite } from "../../../src/store/sqlite/database.ts";
import { sqliteStore } from "../../../src/store/sqlite/sqliteStore.ts";
import type { Store } from "../../../src/store/store.ts";
import { StorageRefused } from "../../../src/store/store.ts";
import { createRandom } from "../createRandom.ts";
import { makeRunStart, makeRunStep } from "../contract/runs.ts";
import { bytes, makeOldestFirstQuery, createTestFolder, makeInput, createSource, TestClock, StoreFixture } from "../storeFixture.ts";

// Damages the files of a store at random places, opens it as a server does, and looks at all that it says and sends.

/** The accepted content: JSON of each thing by its name, whether it was stored before the last fold, and what may be sent. */
type AcceptedContent = { things: Map<string, { text: string; isFolded: boolean }>; sendable: ReadonlySet<string>; due: number };
type Files = { database: Buffer; log: Buffer };
type Page = { name: string; type: string };
/** `files`: with half of it in the log. `folded`: with all of it in the database. */
export type Template = {
  files: Files;
  checkpointed: Files;
  accepted: AcceptedContent;
  pages: ReadonlyMap<number, Page>;
  pageBytes: number;
  keys: string;
  now: number;
};

/** The result of one round. `noticed`: by what. `where`: what was damaged. `faults`: what must never be. */
export type DamageRound = { noticed: string; where: string; faults: string[] };

const minute = 60_000;

/** The words of a message as it is sent. */
const fingerprint = ({ message: { url, method, headers, body } }: Delivery): string =>
  JSON.stringify([url, method, headers, Buffer.from(body).toString("base64")]);

/** Makes a store with messages, dead letters, schedules, URL groups and runs; half of it folded into the file, half of it in the log. */
export async function createTemplate(seed: number): Promise<Template> {
  const path = join(createTestFolder(), "store.db");
  const clock = new TestClock();
  const fixture = new StoreFixture(await sqliteStore(path, createSource(clock, "nod_a", seed)), clock, "nod_a");
  const random = createRandom(seed);
  await fixture.account();
  const before = await fillStore(fixture, random, "f");
  const folded = new Set((await readContents(fixture.store)).keys());
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
    things: new Map([...things].map(([name, text]) => [name, { text, isFolded: folded.has(name) }])),
    sendable: new Set([...before, ...sent].map(fingerprint)),
    due: sent.length,
  };
  return { files, checkpointed: whole, accepted, pages, pageBytes, keys: withChecksum(`# The keys\n${makeKeyLine(1)}\n`), now };
}

async function fillStore(fixture: StoreFixture, random: () => number, phase: string): Promise<Delivery[]> {
  const sent: Delivery[] = [];
  const text = (max: number): Uint8Array =>
    bytes(Array.from({ length: 1 + Math.floor(random() * max) }, () => Math.floor(random() * 36).toString(36)).join(""));
  for (let n = 0; n < 6; n++) {
    const inputs = Array.from({ length: 8 }, (_, at) =>
      makeInput({ url: `https://${phase}${n}.example/m${at}`, body: text(at === 0 ? 30_000 : 700), delay: minute }),
    );
    await fixture.publish(inputs);
    sent.push(await publishFailing(fixture, makeInput({ url: `https://dead.example/${phase}${n}`, body: text(300), retries: 0 })));
    const name = `${phase}${n}`;
    await fixture.store.execute("addEndpoints", {
      account: "acc",
      name,
      endpoints: [{ name: "one", url: `https://group.example/${name}` }],
    });
    const { body, ...input } = makeInput({ url: `https://fired.example/${name}`, body: text(2_000) });
    await fixture.store.execute("createSchedule", { account: "acc", id: name, cron: "* * * * *", messageInput: input, body });
    const run = `wfr_${name}`;
    await fixture.publish([
      makeRunStart(run, { body: text(500) }),
      makeRunStep(run, 1, { body: text(3_000) }),
      makeRunStep(run, 2, { body: text(800), delay: minute }),
    ]);
    const delivered = fixture.delivered();
    sent.push(...delivered);
    for (const delivery of delivered) await fixture.settle(delivery);
  }
  return sent;
}

/** Publishes a message that fails for good. */
async function publishFailing(fixture: StoreFixture, input: MessageInput): Promise<Delivery> {
  const delivery = await fixture.sent(input);
  await fixture.settle(delivery, { status: 500 });
  return delivery;
}

/** All that can be read, by names, each for itself and in lists. `trouble`: what a read throws. */
async function readContents(store: Store, onError: (error: unknown) => void = rethrow): Promise<Map<string, string>> {
  const things = new Map<string, string>();
  const trying = async (run: () => Promise<void>): Promise<void> => run().catch(onError);
  const keep = (name: string, row: { damaged?: true } | null): void =>
    void (row && things.set(name, row.damaged ? "damaged" : JSON.stringify(row)));
  await trying(async () => {
    for (const { deadLetter: input, message } of (await store.read.deadLetters(makeOldestFirstQuery())).entries) {
      keep(`letter ${input.id}`, input);
      keep(`envelope ${message.id}`, message);
    }
  });
  await trying(async () => {
    for (const group of await store.read.listResources("urlGroups", { account: "acc", limit: 100 })) keep(`group ${group.name}`, group);
  });
  await trying(async () => {
    for (const schedule of await store.read.listResources("schedules", { account: "acc", limit: 100 }))
      keep(`schedule ${schedule.id}`, schedule);
  });
  await trying(async () => {
    const { messageIds } = await store.read.unfinished({ account: "acc", filter: {}, cursor: null, count: 1_000 });
    for (const id of messageIds) await trying(async () => keep(`envelope ${id}`, (await store.read.message("acc", id))?.message ?? null));
  });
  await trying(async () => {
    const { runs } = await store.read.runs({ account: "acc", filter: {}, cursor: null, count: 100 });
    for (const run of runs)
      await trying(async () => {
        for (const step of await store.read.history("acc", run.id)) keep(`step ${step.id}`, step);
      });
  });
  return things;
}

const rethrow = (error: unknown): never => {
  throw error;
};

/** Claims all that comes due within some minutes. `said`: what the log says. */
async function sendAll(fixture: StoreFixture): Promise<{ sent: Delivery[]; said: string[] }> {
  const [sent, said]: [Delivery[], string[]] = [[], []];
  const claims = new Claimer({
    store: fixture.store,
    now: () => fixture.clock.now,
    logFailure: (what, error) => said.push(`${what}: ${String(error)}`),
  });
  fixture.clock.now += 2 * minute;
  for (let n = 0; n < 12; n++) {
    try {
      const { more } = await claims.next({ limit: 100, hostWaitlists: 100 });
      if (!more) fixture.clock.now += 20_000;
    } catch (error) {
      said.push(String(error));
      fixture.clock.now += 20_000;
    }
    const settled = fixture.delivered().map((delivery) => {
      if (delivery.unsendable === undefined) sent.push(delivery);
      else said.push(delivery.unsendable);
      const outcome = delivery.unsendable === undefined ? {} : { status: null, error: delivery.unsendable, isFinal: true as const };
      return fixture.settle(delivery, outcome).catch((error: unknown) => said.push(String(error)));
    });
    await Promise.all(settled);
  }
  said.push(...fixture.faults);
  return { sent, said };
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
        name: owners.get(String(name)) === String(name) ? String(name) : `index of ${owners.get(String(name)) ?? "all"}`,
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

/** A random damage of the database or its log. */
function pickDamage(template: Template, random: () => number): DamagePlace {
  const { pageBytes, pages, accepted } = template;
  const below = (max: number): number => Math.floor(random() * max);
  const isLate = (name: string): boolean => !accepted.things.get(name)?.isFolded;
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
  const what = kind < 0.4 ? "log" : "database";
  const at = below(files[what].byteLength);
  const bit = 1 << below(8);
  const damage = (copy: Files): void => void (copy[what][at] = (copy[what][at] ?? 0) ^ bit);
  if (what === "log")
    return { what, where: at < 32 ? "header of the log" : "frame of the log", files, page: null, damage, mayLose: isLate };
  const page = Math.floor(at / pageBytes) + 1;
  const owner = pages.get(page);
  const image = files.database.subarray((page - 1) * pageBytes, page * pageBytes);
  // Ids lie in the cells of leaves. Overflow pages, and pages that lead to others, may concern any row.
  const isAny = page === 1 || owner === undefined || owner.type !== "leaf";
  const mayLose = (name: string): boolean => isAny || image.includes(name.slice(name.indexOf(" ") + 1));
  return { what, where: owner ? owner.name : "unused page", files, page, damage, mayLose };
}

/** One round: damages a copy of the files, opens it, reads all, sends all, and compares. */
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
    store = await sqliteStore(path, createSource(clock, "nod_b", seed), null, (damage) => found.push(damage));
  } catch (error) {
    const isNamed = error instanceof StorageRefused && error.message.includes(path);
    return {
      noticed: "refused at start",
      where: place.where,
      faults: isNamed ? [] : [`refused without the name of the file: ${String(error)}`],
    };
  }
  try {
    return await inspectStore(template, place, new StoreFixture(store, clock, "nod_b"), found);
  } finally {
    await store.close();
  }
}

async function inspectStore(
  { accepted }: Template,
  place: DamagePlace,
  fixture: StoreFixture,
  found: readonly Damage[],
): Promise<DamageRound> {
  const faults: string[] = [];
  const thrown: unknown[] = [];
  const things = await readContents(fixture.store, (error) => thrown.push(error));
  const { sent, said } = await sendAll(fixture);
  for (const error of thrown)
    if (!(error instanceof StorageRefused)) faults.push(`a read failed: ${error instanceof Error ? (error.stack ?? "") : String(error)}`);
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
    if (!accepted.sendable.has(fingerprint(delivery))) faults.push(`altered content was sent: ${fingerprint(delivery).slice(0, 300)}`);
  return { noticed: findDetection(found, said, { isAnyMissing, isWhole: sent.length >= accepted.due }), where: place.where, faults };
}

function findDetection(
  found: readonly Damage[],
  said: readonly string[],
  { isAnyMissing, isWhole }: { isAnyMissing: boolean; isWhole: boolean },
): string {
  if (found.some(({ text }) => text.includes("-wal: damaged"))) return "log check";
  if (found.some(({ isFile }) => isFile)) return "SQLite";
  if (found.length > 0) return "checksum of a row";
  if (said.length > 0) return "contradiction between rows";
  return isAnyMissing || !isWhole ? "not noticed, something is missing" : "not noticed, nothing is missing";
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
      faults: read.key.equals(written.key) && read.version === written.version ? [] : ["another key was read"],
    };
  } catch (error) {
    const isNamed = error instanceof StorageRefused && error.message.includes(file);
    return { noticed: "refused at start", where, faults: isNamed ? [] : [`refused without the name of the file: ${String(error)}`] };
  }
}
