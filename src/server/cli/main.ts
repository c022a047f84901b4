import { randomUUID } from "node:crypto";
import { rmSync } from "node:fs";
import { Command, CommanderError } from "commander";
import { pino } from "pino";
import type { Logger } from "pino";
import type { ServerConfig, ServerSettingName } from "../../settings/config.ts";
import {
  toFlag,
  readConfig as readGiven,
  serverSettingNames,
  isFlag,
  serverSettings,
  explainConfig,
  toVariable,
} from "../../settings/config.ts";
import { ConfigRefused } from "../../settings/configSources.ts";
import {
  developmentAccounts,
  formatEnvironment,
  makeFirstAccount,
  readGivenAccount,
} from "../../settings/credentials.ts";
import {
  resolveDataFolder,
  DataFolderRefused,
  createTemporaryDataFolder,
} from "../../settings/dataFolder.ts";
import { addAccountCommands } from "./account.ts";
import { addBackupCommands } from "../../operations/backup/verb.ts";
import { BackupRefused } from "../../operations/backup/backup.ts";
import { requireNamedAccount } from "../../engine/core/accounts/accountRequest.ts";
import { readCause } from "../../api/http/problems.ts";
import { tagline } from "../../engine/core/values/brand.ts";
import { Refusal } from "../../engine/core/values/errors.ts";
import { addHealthCommand } from "./healthCommand.ts";
import { addConfigCommand } from "./config.ts";
import { addDoctorCommand } from "../../operations/doctor/verb.ts";
import { BundleRefused } from "../../operations/doctor/doctor.ts";
import { addKeyCommands } from "./encryptionKeys.ts";
import { systemClock } from "../../engine/clock/clock.ts";
import { findKeySource, KeysRefused } from "../../settings/encryptionKeys.ts";
import { type ServerAdmin, ServerAdminRefused } from "../accountAdmin.ts";
import { connectToServerAdmin, findServer } from "../accountAdmin.ts";
import { listen } from "./listen.ts";
import { createLogOutput } from "./logOutput.ts";
import { addMoveCommand, MoveRefused } from "../../operations/moveStore/verb.ts";
import { onSignal, assertFreePort, runServer } from "./runServer.ts";
import { makeSecret, readAccounts, withServerAdmin } from "./storeAccess.ts";
import { CannotStart } from "./cannotStart.ts";
import { StorageRefused, Unavailable } from "../../engine/store/layout/storageErrors.ts";
import { clientUrl } from "../../settings/addresses.ts";
import { version } from "../../settings/version.ts";
import { readStartFlags, type StartFlags, withStartFlags } from "./startFlags.ts";
import { addTokenCommands } from "./token.ts";
import { linkDocumentation } from "../../client/documentation.ts";
import { CommandFailed } from "../../client/terminal/commandFailed.ts";
import { hour } from "../../engine/core/values/time.ts";
import { formatRefusal } from "../../api/http/remedies.ts";

// The server continues even if the program that reads its output has ended.
for (const stream of [process.stdout, process.stderr]) {
  stream.on("error", (error: NodeJS.ErrnoException) => {
    if (error.code !== "EPIPE") throw error;
  });
}

/** Returns a function that prints the lines of a start, as text or as JSON objects like those of the log. */
const createPrinter =
  ({ logFormat }: ServerConfig, { jsonByDefault }: { jsonByDefault: boolean }) =>
  (line: string): void =>
    print(
      logFormat === "json" || (logFormat === "auto" && jsonByDefault)
        ? JSON.stringify({ level: infoLevel, time: systemClock.now(), msg: line })
        : line,
    );

/** The number of the level info in the log. */
const infoLevel = 30;

const print = (line: string): void => void process.stdout.write(`${line}\n`);

const program = new Command("waypost")
  .description(tagline)
  .version(version)
  .exitOverride()
  // Otherwise flags of a subcommand, such as doctor egress, would count as those of its parent.
  .enablePositionalOptions()
  .showHelpAfterError("(waypost --help lists all commands)");

addConfigCommand<Flags>(program, {
  withAllFlags: (command) => withSettings(command, serverSettingNames.filter(isFlag)),
  explain: (flags) => explainConfig(flags, process.env),
  print,
});

withStartFlags(
  withSettings(
    program
      .command("start")
      .description("run the server; the first start creates an account and prints its credentials"),
    serverSettingNames.filter(isFlag),
  ),
).action(async (flags: Flags & StartFlags) => {
  const settings = readServerConfig(flags, process.env);
  await runServer(settings, {
    firstAccounts: () => [readGivenAccount(settings) ?? makeFirstAccount(randomUUID(), makeSecret)],
    ...readStartFlags(flags),
    heading: "credentials of the new account; waypost credentials prints them again",
    // Elsewhere the output may be kept, as by a journal or a container engine.
    showsCredentials: process.stdout.isTTY,
    log: await createServerLog(settings),
    print: createPrinter(settings, { jsonByDefault: !process.stdout.isTTY }),
  });
});

withStartFlags(
  withSettings(
    program
      .command("dev")
      .description(
        "run a development server: well-known credentials, deliveries to this machine allowed; " +
          "without --data nothing is kept",
      ),
    serverSettingNames.filter((name) => isFlag(name) && name !== "egressAllow"),
  ),
).action(async (flags: Flags & StartFlags) => {
  const environment = {
    ...process.env,
    WAYPOST_EGRESS_ALLOW: [process.env.WAYPOST_EGRESS_ALLOW, "127.0.0.0/8,::1/128"].filter(Boolean).join(","),
  };
  const keeps = flags.data !== undefined || flags.databaseUrl !== undefined;
  const folder = keeps ? null : createTemporaryDataFolder(systemClock.now());
  const settings = readServerConfig(folder === null ? flags : { ...flags, data: folder }, environment);
  if (folder !== null) process.on("exit", () => rmSync(folder, { recursive: true, force: true }));
  if (settings.ownerToken !== "")
    throw new ConfigRefused(
      `${toVariable("ownerToken")}: a development server has its own well-known credentials; ` +
        "remove the setting, or use waypost start",
    );
  await runServer(settings, {
    firstAccounts: () => developmentAccounts,
    known: developmentAccounts.slice(0, 1),
    ...readStartFlags(flags),
    heading: "well-known development credentials",
    showsCredentials: true,
    signsIn: true,
    isDevelopment: true,
    log: await createServerLog(settings),
    // The output is for people, also through a pipe.
    print: createPrinter(settings, { jsonByDefault: false }),
  });
});

/** Reads all settings. `data` becomes the folder that the server actually uses. */
function readServerConfig(...sources: Parameters<typeof readGiven>): ServerConfig {
  const settings = readGiven(...sources);
  return settings.databaseUrl === "" ? { ...settings, data: resolveDataFolder(settings.data) } : settings;
}

/** The settings that locate the store. */
const storeSettings = [
  "data",
  "databaseUrl",
  "keys",
  "keysFile",
  "host",
  "port",
] as const satisfies ServerSettingName[];

/**
 * Reads only the settings of the store. All other flags belong to the command, even if a setting has the same
 * name, such as the flag `--log-retention` of an account.
 */
const readStoreConfig = (flags: Flags): ServerConfig =>
  readServerConfig(
    Object.fromEntries([...storeSettings, "config" as const].map((name) => [name, flags[name]] as const)),
    process.env,
  );

withSettings(
  program
    .command("credentials")
    .argument("[account]", "id or name; optional if there is only one account")
    .description("print an account's credentials as environment variables")
    // The commands that need no server carry it out (client/newCredentials.ts).
    .option("--new", "print new credentials instead, for a server that has not been started yet"),
  [...storeSettings, "publicUrl"],
).action(async (named: string | undefined, flags: Flags) => {
  const settings = readServerConfig(flags, process.env);
  const accounts = (await readAccounts(settings)).filter(({ deletedAt }) => deletedAt === undefined);
  const [first] = accounts;
  if (!first) throw new CannotStart('no account found; "waypost account create <name>" creates one');
  if (named === undefined && accounts.length > 1) {
    const names = [
      ...accounts.slice(0, 20).map(({ name }) => name),
      ...(accounts.length > 20 ? ["…"] : []),
    ].join(", ");
    throw new CannotStart(
      `several accounts exist; name one of ${names}, for example waypost credentials ${first.name}`,
    );
  }
  const account = named === undefined ? first : requireNamedAccount(accounts, named);
  const server = settings.databaseUrl === "" ? await findServer(settings.data) : "none";
  const doubt = server === "silent" ? "the running server does not respond" : "no running server found";
  const isDerived = typeof server === "string" && settings.publicUrl === "";
  const urlNote = isDerived ? `# ${doubt}; the URL is made of --host and --port\n` : "";
  const url = typeof server === "string" ? clientUrl(settings) : server.url;
  print(`# ${account.name}\n${urlNote}${formatEnvironment(account, url)}`);
});

program
  .command("listen")
  .description("run a test receiver that prints requests and verifies their signatures")
  .argument("[port]", "port to listen on", "4000")
  .option("--host <address>", "address to listen on", "127.0.0.1")
  .option("--status <code>", "status of the responses", "200")
  .option("--delay <ms>", "delay before each response, in milliseconds", "0")
  .action(async (port: string, options: { host: string; status: string; delay: string }) => {
    const [development] = developmentAccounts;
    const key = (name: string, otherwise = ""): string =>
      process.env[`WAYPOST_${name}`] ?? process.env[`QSTASH_${name}`] ?? otherwise;
    const address = { port: parseWholeNumber("port", port, 65535), host: options.host };
    await assertFreePort(address);
    const server = await listen({
      ...address,
      status: parseWholeNumber("--status", options.status, 599),
      delay: parseWholeNumber("--delay", options.delay, hour),
      keys: [
        key("CURRENT_SIGNING_KEY", development?.signingKeys.current),
        key("NEXT_SIGNING_KEY", development?.signingKeys.next),
      ],
      print,
    });
    onSignal(async () => {
      server.closeAllConnections();
      server.close();
    });
    const bound = server.address();
    print(
      `listening on http://${options.host}:${bound && typeof bound === "object" ? bound.port : port} ` +
        "(Ctrl-C stops it)",
    );
  });

addHealthCommand(program, process.env);

addDoctorCommand<Flags>(program, {
  runningServer: {
    findServer,
    // Loaded only for a check: all routes come with it.
    loadFinders: async () =>
      (await import("../../operations/served.ts")).served.flatMap((one) => one.findConditions ?? []),
    readEgress: (data) => connectToServerAdmin(data).egressSettings(),
  },
  withAllFlags: (command) => withSettings(command, serverSettingNames.filter(isFlag)),
  readSettings: (flags) => readServerConfig(flags, process.env),
  explain: (flags) => explainConfig(flags, process.env),
  print,
});

addAccountCommands<Flags>(program, {
  withStoreFlags: (command) => withSettings(command, storeSettings),
  withAdmin: (flags, run) => withStoreAdmin(readStoreConfig(flags), run),
  print,
});

addTokenCommands<Flags>(program, {
  withStoreFlags: (command) => withSettings(command, storeSettings),
  withAdmin: (flags, run) => withStoreAdmin(readStoreConfig(flags), run),
  now: () => systemClock.now(),
  print,
});

addKeyCommands<Flags>(program, {
  withStoreFlags: (command) => withSettings(command, storeSettings),
  withAdmin: (flags, run) => withStoreAdmin(readStoreConfig(flags), run),
  readKeySource: (flags) => {
    const settings = readStoreConfig(flags);
    return { source: findKeySource(settings), isShared: settings.databaseUrl !== "" };
  },
  print,
});

withSettings(
  program.command("unhold").description("resume the deliveries of a server that was started with --hold"),
  storeSettings,
).action(async (flags: Flags) => {
  const { wasHeld } = await withStoreAdmin(readStoreConfig(flags), (admin) => admin.unhold());
  print(wasHeld ? "deliveries are no longer held" : "deliveries were not held; nothing changed");
});

addBackupCommands<Flags>(program, {
  withStoreFlags: (command) => withSettings(command, ["data", "keysFile"]),
  readSettings: readStoreConfig,
  print,
});

addMoveCommand(program, { print });

type Flags = Partial<Record<ServerSettingName | "config", string>>;

function withSettings(command: Command, names: readonly ServerSettingName[]): Command {
  command.option(
    "--config <file>",
    "JSON file with settings by name, as in waypost config\n(WAYPOST_CONFIG)",
  );
  for (const name of names) {
    const { value, help, takes, default: otherwise } = serverSettings[name];
    const initial = otherwise === "" ? "" : `, default ${otherwise}`;
    command.option(
      `${toFlag(name)} ${value}`,
      `${help}\n(${toVariable(name)}${initial}; ${takes.description})`,
    );
  }
  return command;
}

/**
 * Returns the log. The log goes to stderr and the output of commands goes to stdout, so that credentials
 * never get into a log.
 */
const createLog = ({ logLevel }: ServerConfig): Logger =>
  pino({ level: logLevel, base: null }, createLogOutput(2));

/** Returns the log in the format of the settings: by default JSON, and text on a terminal. */
const createServerLog = async (settings: ServerConfig): Promise<Logger> =>
  settings.logFormat === "text" || (settings.logFormat === "auto" && process.stderr.isTTY)
    ? createPrettyLog(settings)
    : createLog(settings);

/** Returns the same log in a readable format for a terminal. */
async function createPrettyLog({ logLevel }: ServerConfig): Promise<Logger> {
  const { PinoPretty } = await import("pino-pretty");
  return pino(
    { level: logLevel, base: null },
    PinoPretty({ destination: 2, sync: true, singleLine: true, translateTime: "HH:MM:ss" }),
  );
}

const withStoreAdmin = <T>(settings: ServerConfig, run: (admin: ServerAdmin) => Promise<T>): Promise<T> =>
  withServerAdmin(settings, { log: createLog(settings), run });

function parseWholeNumber(name: string, text: string, max: number): number {
  const value = Number(text);
  if (/^\d+$/.test(text) && value <= max) return value;
  throw new CannotStart(`${name}: "${text}" is not a whole number from 0 to ${max}`);
}

/** Returns an error's text with its cause: the operator must learn why the storage is unavailable. */
function formatWithCause(error: Error): string {
  const cause = error instanceof Refusal ? readCause(error) : null;
  const problem = formatRefusal(error);
  return cause === null ? problem : `${problem} (${cause})`;
}

const args = process.argv.slice(2);
const startsServer = args[0] === "start" || args[0] === "dev";

async function run(): Promise<void> {
  if (!startsServer) {
    const { runClientCommand } = await import("../../client/main.ts");
    if (await runClientCommand(args, process.env)) return;
    // For the help and the completion.
    const { addClientCommands } = await import("../../client/commands.ts");
    const { addCompletionCommand } = await import("../../client/completion.ts");
    addClientCommands(program, { environment: process.env });
    addCompletionCommand(program);
  }
  linkDocumentation(program);
  await program.parseAsync();
}

// Without a top-level await, which a single executable cannot have.
run().catch((error: unknown) => {
  if (error instanceof CommanderError) process.exit(error.exitCode === 0 ? 0 : 2);
  const expected = [
    CannotStart,
    BackupRefused,
    CommandFailed,
    BundleRefused,
    ConfigRefused,
    DataFolderRefused,
    ServerAdminRefused,
    KeysRefused,
    MoveRefused,
    StorageRefused,
    Unavailable,
    Refusal,
  ].some((kind) => error instanceof kind);
  process.stderr.write(
    "waypost: " +
      `${error instanceof Error ? (expected ? formatWithCause(error) : error.stack) : String(error)}\n`,
  );
  process.exit(expected ? 2 : 1);
});
