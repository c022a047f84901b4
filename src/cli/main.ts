import { randomUUID } from "node:crypto";
import { existsSync, rmSync } from "node:fs";
import { createServer } from "node:net";
import { once } from "node:events";
import { Command, CommanderError } from "commander";
import { pino } from "pino";
import type { Logger } from "pino";
import type { ServerConfig, ServerSettingName } from "../server/config.ts";
import { toFlag, readConfig as readGiven, serverSettingNames, serverSettings, ConfigRefused, toVariable } from "../server/config.ts";
import type { NewAccount } from "../server/credentials.ts";
import { developmentAccounts, formatEnvironment, makeFirstAccount } from "../server/credentials.ts";
import {
  resolveDataFolder,
  DataFolderRefused,
  FolderTaken,
  hasStore,
  toStorePath,
  createTemporaryDataFolder,
} from "../server/dataFolder.ts";
import { addAccountCommands } from "./account.ts";
import { mustFindAccount } from "../core/commands/accountRequest.ts";
import { readCause } from "../api/http/problems.ts";
import { Refusal } from "../core/values/errors.ts";
import { addKeyCommands } from "./keys.ts";
import { findKeySource, KeysRefused } from "../server/encryptionKeys.ts";
import type { KeySource } from "../store/sql/keyRing.ts";
import { createIdGenerator } from "../core/values/ids.ts";
import type { ServerAdmin } from "../server/accountAdmin.ts";
import { commandLine, connectToServerAdmin, createServerAdmin, ServerAdminRefused } from "../server/accountAdmin.ts";
import { systemClock, systemRandom } from "../clock/clock.ts";
import { listen } from "./listen.ts";
import { createLogOutput } from "./logOutput.ts";
import { addMoveCommand, MoveRefused } from "./migrateStore.ts";
import { clientUrl, openStore, serve } from "../server/serve.ts";
import { createSqlReads } from "../store/sql/reads.ts";
import { openSqlite } from "../store/sqlite/database.ts";
import { StorageRefused, Unavailable } from "../store/store.ts";
import { addTokenCommands } from "./token.ts";
import { hour } from "../core/values/time.ts";

/** The command cannot do what it was asked; the text is for people. Exit code 2. */
class CannotStart extends Error {}

// Whoever read what is printed may be gone; the server goes on.
for (const stream of [process.stdout, process.stderr]) {
  stream.on("error", (error: NodeJS.ErrnoException) => {
    if (error.code !== "EPIPE") throw error;
  });
}

const print = (line: string): void => void process.stdout.write(`${line}\n`);

const program = new Command("waypost")
  .description("An open, durable HTTP message queue that you host yourself.")
  .version("0.1.0")
  .exitOverride()
  .showHelpAfterError("(waypost --help shows what there is)");

withSettings(
  program.command("start").description("serve; the first start makes an account and prints its credentials"),
  serverSettingNames.filter(isFlag),
).action(async (flags: Flags) => {
  const settings = readServerConfig(flags, process.env);
  await runServer(settings, {
    firstAccounts: () => [makeFirstAccount(randomUUID(), () => makeSecret())],
    heading: "the credentials of the new account; waypost credentials prints them again",
    log: createLog(settings),
  });
});

withSettings(
  program
    .command("dev")
    .description("serve for development: well-known credentials, deliveries to this machine allowed; without --data nothing is kept"),
  serverSettingNames.filter((name) => isFlag(name) && name !== "egressAllow"),
).action(async (flags: Flags) => {
  const environment = {
    ...process.env,
    WAYPOST_EGRESS_ALLOW: [process.env.WAYPOST_EGRESS_ALLOW, "127.0.0.0/8,::1/128"].filter(Boolean).join(","),
  };
  const keeps = flags.data !== undefined || flags.databaseUrl !== undefined;
  const folder = keeps ? null : createTemporaryDataFolder(systemClock.now());
  const settings = readServerConfig(folder === null ? flags : { ...flags, data: folder }, environment);
  if (folder !== null) process.on("exit", () => rmSync(folder, { recursive: true, force: true }));
  await runServer(settings, {
    firstAccounts: () => developmentAccounts,
    heading: "the well-known credentials of development",
    log: process.stderr.isTTY ? await createPrettyLog(settings) : createLog(settings),
  });
});

/** Reads all settings. `data` is the folder that is really used. */
function readServerConfig(...sources: Parameters<typeof readGiven>): ServerConfig {
  const settings = readGiven(...sources);
  return settings.databaseUrl === "" ? { ...settings, data: resolveDataFolder(settings.data) } : settings;
}

/** The settings that say where the store is. */
const storeSettings = ["data", "databaseUrl", "keys", "keysFile", "host", "port"] as const satisfies ServerSettingName[];

/** Those alone: other flags of a command are its own, also where a setting has the same name, such as `--log-retention` of an account. */
const readStoreConfig = (flags: Flags): ServerConfig =>
  readServerConfig(Object.fromEntries(storeSettings.map((name) => [name, flags[name]] as const)), process.env);

withSettings(
  program
    .command("credentials")
    .argument("[account]", "id or name; may be left out where there is one account")
    .description("print the credentials of an account again, as environment lines"),
  [...storeSettings, "publicUrl"],
).action(async (named: string | undefined, flags: Flags) => {
  const settings = readServerConfig(flags, process.env);
  const accounts = (await readAccounts(settings)).filter(({ deletedAt }) => deletedAt === undefined);
  const [first] = accounts;
  if (!first) throw new CannotStart('there is no account; "waypost account create <name>" makes one');
  if (named === undefined && accounts.length > 1) {
    const names = [...accounts.slice(0, 20).map(({ name }) => name), ...(accounts.length > 20 ? ["…"] : [])].join(", ");
    throw new CannotStart(`there are several accounts: name one of ${names}, as in waypost credentials ${first.name}`);
  }
  const account = named === undefined ? first : mustFindAccount(accounts, named);
  const url = await findServerUrl(settings);
  const urlNote = url === null && settings.publicUrl === "" ? "# no server was asked; the URL is that of --host and --port\n" : "";
  print(`# ${account.name}\n${urlNote}${formatEnvironment(account, url ?? clientUrl(settings))}`);
});

/** Where clients reach the server that has the data folder. Null: none has it, or it cannot be asked. */
const findServerUrl = ({ data, databaseUrl }: ServerConfig): Promise<string | null> =>
  databaseUrl === ""
    ? connectToServerAdmin(data)
        .url()
        .catch(() => null)
    : Promise.resolve(null);

program
  .command("listen")
  .description("a receiver to try things with: prints what arrives and verifies its signature")
  .argument("[port]", "port to listen on", "4000")
  .option("--host <address>", "address to listen on", "127.0.0.1")
  .option("--status <code>", "status to answer with", "200")
  .option("--delay <ms>", "wait before answering", "0")
  .action(async (port: string, options: { host: string; status: string; delay: string }) => {
    const [development] = developmentAccounts;
    const key = (name: string, otherwise = ""): string => process.env[`WAYPOST_${name}`] ?? process.env[`QSTASH_${name}`] ?? otherwise;
    const address = { port: parseWholeNumber("port", port, 65535), host: options.host };
    await requireFreePort(address);
    const server = await listen({
      ...address,
      status: parseWholeNumber("--status", options.status, 599),
      delay: parseWholeNumber("--delay", options.delay, hour),
      keys: [key("CURRENT_SIGNING_KEY", development?.signingKeys.current), key("NEXT_SIGNING_KEY", development?.signingKeys.next)],
      print,
    });
    onSignal(async () => {
      server.closeAllConnections();
      server.close();
    });
    const bound = server.address();
    print(`listening on http://${options.host}:${bound && typeof bound === "object" ? bound.port : port} (Ctrl-C ends it)`);
  });

addAccountCommands<Flags>(program, {
  withStoreFlags: (command) => withSettings(command, storeSettings),
  withAdmin: (flags, run) => withServerAdmin(readStoreConfig(flags), run),
  print,
});

addTokenCommands<Flags>(program, {
  withStoreFlags: (command) => withSettings(command, storeSettings),
  withAdmin: (flags, run) => withServerAdmin(readStoreConfig(flags), run),
  now: () => systemClock.now(),
  print,
});

addKeyCommands<Flags>(program, {
  withStoreFlags: (command) => withSettings(command, storeSettings),
  withAdmin: (flags, run) => withServerAdmin(readStoreConfig(flags), run),
  readKeySource: (flags) => {
    const settings = readStoreConfig(flags);
    return { source: findKeySource(settings), isShared: settings.databaseUrl !== "" };
  },
  print,
});

addMoveCommand(program, { print });

/** What is a secret stands in the environment: everybody on a machine can read the command lines there. */
function isFlag(name: ServerSettingName): boolean {
  return name !== "operatorPassword";
}

type Flags = Partial<Record<ServerSettingName, string>>;

function withSettings(command: Command, names: readonly ServerSettingName[]): Command {
  for (const name of names) {
    const { value, help, default: otherwise } = serverSettings[name];
    command.option(`${toFlag(name)} ${value}`, `${help}\n(${toVariable(name)}${otherwise === "" ? "" : `, default ${otherwise}`})`);
  }
  return command;
}

/** What the command says goes to stdout, the log to stderr, so credentials never end up in a log. */
const createLog = ({ logLevel }: ServerConfig): Logger => pino({ level: logLevel, base: null }, createLogOutput(2));

/** The same lines for somebody who looks on. */
async function createPrettyLog({ logLevel }: ServerConfig): Promise<Logger> {
  const { PinoPretty } = await import("pino-pretty");
  return pino({ level: logLevel, base: null }, PinoPretty({ destination: 2, sync: true, singleLine: true, translateTime: "HH:MM:ss" }));
}

/** `heading`: stands above the credentials of accounts that were made. */
type RunOptions = { firstAccounts: () => readonly NewAccount[]; heading: string; log: Logger };

/** Serves until a signal comes. */
async function runServer(settings: ServerConfig, { firstAccounts, heading, log }: RunOptions): Promise<void> {
  const { port, host, accountPort } = settings;
  await requireFreePort({ port, host }, "--port");
  if (accountPort !== null) {
    if (accountPort === port && port !== 0) throw new CannotStart(`--account-port: ${port} is that of --port already; choose another one`);
    await requireFreePort({ port: accountPort, host }, "--account-port");
  }
  const serving = serve(settings, { log, firstAccounts, onBroken: (error) => exitBroken(log, error) });
  // Before it is told that the server runs: whoever hears that may stop it at once.
  onSignal(async (signal) => {
    log.info({ signal, grace: settings.grace }, "stopping; running deliveries may take as long as the grace, in milliseconds");
    await (await serving).stop();
    log.info("stopped");
  });
  const served = await serving;
  const [first] = served.created;
  if (first) print(`# ${heading}\n${formatEnvironment(first, settings.publicUrl || served.url)}\n`);
  if (served.accountUrl !== null) print(`accounts at ${served.accountUrl}`);
  print(`running at ${served.url}`);
}

/** Nothing is lost by it that was acknowledged: whoever starts next goes on with what is on the disk. */
function exitBroken(log: Logger, error: Error): never {
  log.fatal(
    { err: error },
    "the disk failed to keep what was written, so nothing more can be stored; this server ends, to be started again",
  );
  process.exit(1);
}

/** Before anything is made: a taken port must not leave a new store behind. */
async function requireFreePort({ port, host }: Pick<ServerConfig, "port" | "host">, flag = "--port"): Promise<void> {
  const probe = createServer();
  try {
    probe.listen(port, host);
    await once(probe, "listening");
  } catch (error) {
    throw new CannotStart(formatListenError(error, { host, port, flag }));
  } finally {
    probe.close();
  }
}

function formatListenError(error: unknown, { host, port, flag }: { host: string; port: number; flag: string }): string {
  const code = error instanceof Error && "code" in error ? error.code : "";
  if (code === "EADDRINUSE") return `port ${port} of ${host} is taken (address already in use); choose another one`;
  if (code === "EACCES") return `port ${port} may not be opened by this user; choose one above 1023 with ${flag}`;
  return `cannot listen on ${host}:${port} (${error instanceof Error ? error.message : String(error)})`;
}

/**
 * The first signal stops in order, a second one at once. One Ctrl-C can arrive several times, from the terminal and
 * from each program in between, so what follows within a second is the same one. A terminal that is closed is one, too: Node does not let
 * `nohup` have it ignored, so without this it would end at once.
 */
function onSignal(stop: (signal: string) => Promise<void>): void {
  let firstSignalAt: number | null = null;
  const handle = (signal: string): void => {
    if (firstSignalAt !== null) return systemClock.now() - firstSignalAt > 1000 ? process.exit(130) : undefined;
    firstSignalAt = systemClock.now();
    stop(signal).then(
      () => process.exit(0),
      (error: unknown) => {
        process.stderr.write(`waypost: stopping failed: ${error instanceof Error ? (error.stack ?? error.message) : String(error)}\n`);
        process.exit(1);
      },
    );
  };
  for (const signal of ["SIGTERM", "SIGINT", "SIGHUP"] as const) process.on(signal, handle);
}

/** Returns the account administration of the running server, or of the store if no server runs. */
async function withServerAdmin<T>(settings: ServerConfig, run: (admin: ServerAdmin) => Promise<T>): Promise<T> {
  const { data, databaseUrl } = settings;
  if (databaseUrl === "" && !hasStore(data))
    throw new CannotStart(`${data}: there is no store yet; waypost start --data ${data} makes one`);
  const node = createIdGenerator(systemRandom)("nod", systemClock.now());
  const opened = await openStore(settings, { node, log: createLog(settings), reclaims: false }).catch((error: unknown) => {
    if (error instanceof FolderTaken) return null;
    throw error;
  });
  if (!opened) return run(connectToServerAdmin(data));
  const options = { logRetention: settings.logRetention, url: () => clientUrl(settings) };
  try {
    return await run(createServerAdmin(opened.store, { ...options, keys: opened.keys, actor: commandLine, newSecret: makeSecret }));
  } finally {
    await opened.close();
  }
}

async function readAccounts(settings: ServerConfig) {
  const { data, databaseUrl, databasePooling } = settings;
  const keys = findKeySource(settings);
  if (databaseUrl !== "") {
    const { openPostgresReads } = await import("../store/postgres/database.ts");
    const location = { url: databaseUrl, pooling: databasePooling, keys };
    const { storageReads, close } = await openPostgresReads(location, { name: createIdGenerator(systemRandom)("nod", systemClock.now()) });
    const accounts = await storageReads.accounts();
    await close();
    return accounts;
  }
  if (!hasStore(data)) throw new CannotStart(`${data}: there is no store yet; waypost start --data ${data} makes one`);
  const database = openSqlite(toStorePath(data), { readOnly: true, keys: withExistingKeys(keys) });
  return createSqlReads(database.connection)
    .accounts()
    .finally(() => database.close());
}

/** A store that was moved here from a database may have none yet. Nothing is made for somebody who only reads. */
const withExistingKeys = (keys: KeySource): KeySource => (keys && "file" in keys && !existsSync(keys.file) ? null : keys);

function parseWholeNumber(name: string, text: string, max: number): number {
  const value = Number(text);
  if (/^\d+$/.test(text) && value <= max) return value;
  throw new CannotStart(`${name}: ${text} is not a whole number up to ${max}`);
}

const generateId = createIdGenerator(systemRandom);
const makeSecret = (): string => generateId("sig", systemClock.now());

/** Whoever starts a server is the one to know why its storage is away. */
function formatWithCause(error: Error): string {
  const cause = error instanceof Refusal ? readCause(error) : null;
  return cause === null ? error.message : `${error.message} (${cause})`;
}

try {
  await program.parseAsync();
} catch (error) {
  if (error instanceof CommanderError) process.exit(error.exitCode === 0 ? 0 : 2);
  const expected = [
    ...[CannotStart, ConfigRefused, DataFolderRefused, ServerAdminRefused, KeysRefused, MoveRefused],
    ...[StorageRefused, Unavailable, Refusal],
  ].some((kind) => error instanceof kind);
  process.stderr.write(`waypost: ${error instanceof Error ? (expected ? formatWithCause(error) : error.stack) : String(error)}\n`);
  process.exit(expected ? 2 : 1);
}
