import { createServer } from "node:net";
import { once } from "node:events";
import type { Logger } from "pino";
import { CannotStart } from "./cannotStart.ts";
import type { ServerConfig } from "../../settings/config.ts";
import type { Account } from "../../engine/core/model/account.ts";
import type { NewAccount } from "../../settings/credentials.ts";
import { formatEnvironment } from "../../settings/credentials.ts";
import { systemClock } from "../../engine/clock/clock.ts";
import { serve } from "../serve.ts";

/** `heading` is printed above the credentials of an account. */
type RunOptions = {
  /** Whether the printed address of the console signs in to the first account. */
  signsIn?: boolean;
  /** Whether the credentials are public. */
  isDevelopment?: boolean;
  firstAccounts: () => readonly NewAccount[];
  /** Publicly known accounts. Their credentials are printed at every start, not only at the first. */
  known?: readonly NewAccount[];
  heading: string;
  /** Whether credentials are printed. Otherwise a line names the command that prints them. */
  showsCredentials: boolean;
  /** Whether the server begins with a hold of all deliveries. */
  hold: boolean;
  /** Whether a clock that is behind the times of an SQLite store is accepted. */
  acceptsClock: boolean;
  /** Whether a store is served from which everything was moved. */
  servesMoved: boolean;
  log: Logger;
  print(line: string): void;
};

/** Runs the server until a signal stops it. */
export async function runServer(
  settings: ServerConfig,
  {
    firstAccounts,
    isDevelopment = false,
    known = [],
    heading,
    log,
    print,
    signsIn = false,
    hold,
    acceptsClock,
    servesMoved,
    showsCredentials,
  }: RunOptions,
): Promise<void> {
  const { port, host, accountPort, metricsPort, metricsHost } = settings;
  await assertFreePort({ port, host }, "--port");
  if (accountPort !== null) {
    if (accountPort === port && port !== 0)
      throw new CannotStart(`--account-port: ${port} is already used by --port; choose another port`);
    await assertFreePort({ port: accountPort, host }, "--account-port");
  }
  if (metricsPort !== null) {
    if (metricsPort !== 0 && (metricsPort === port || metricsPort === accountPort))
      throw new CannotStart(`--metrics-port: ${metricsPort} is already used; choose another port`);
    await assertFreePort({ port: metricsPort, host: metricsHost }, "--metrics-port");
  }
  const serving = serve(settings, {
    log,
    firstAccounts,
    isDevelopment,
    hold,
    clockCheck: acceptsClock ? "accept" : "refuse",
    servesMoved,
    onBroken: (error) => exitBroken(log, error),
  });
  // Installed before the server reports that it runs, because a signal may follow at once.
  onSignal(async (signal) => {
    log.info(
      { signal, grace: settings.grace },
      "shutting down; waiting for running deliveries, at most for the grace (in ms)",
    );
    await (await serving).stop();
    log.info("stopped");
  });
  const served = await serving;
  const first = served.created[0] ?? known.find((account) => hasUnchanged(served.accounts, account));
  if (first && !showsCredentials)
    print(
      `created the account ${first.name}; waypost credentials, with the same settings, ` +
        "prints its credentials",
    );
  else if (first) print(`# ${heading}\n${formatEnvironment(first, settings.publicUrl || served.url)}\n`);
  if (served.accountUrl !== null) print(`accounts at ${served.accountUrl}`);
  if (served.metricsUrl !== null) print(`metrics at ${served.metricsUrl}`);
  const consoleUrl = served.consoleUrl(signsIn ? served.accounts[0]?.id : undefined);
  const signedIn = signsIn ? " (signed in, good once, for ten minutes, from this machine)" : "";
  if (consoleUrl !== null) print(`console at ${consoleUrl}${signedIn}`);
  if (served.lacksConsole) print("no console: it is not built; npm run build:console builds it");
  print(`running at ${served.url}`);
}

/** Reports whether an account still has its first credentials. */
const hasUnchanged = (accounts: readonly Account[], { id, tokenHash, signingKeys }: NewAccount): boolean =>
  accounts.some(
    (account) =>
      account.id === id &&
      account.tokenHash === tokenHash &&
      account.signingKeys.current === signingKeys.current &&
      account.signingKeys.next === signingKeys.next,
  );

/** Exits the process. Acknowledged messages are on the disk, so the next start continues with them. */
function exitBroken(log: Logger, error: Error): never {
  log.fatal(
    { err: error },
    "the disk failed to store data; exiting. Acknowledged messages are safe: restart the server",
  );
  process.exit(1);
}

/**
 * Throws `CannotStart` if a port is in use. Called before anything is created, so that a failed start does
 * not leave a new store behind.
 */
export async function assertFreePort(
  { port, host }: Pick<ServerConfig, "port" | "host">,
  flag = "--port",
): Promise<void> {
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

function formatListenError(
  error: unknown,
  { host, port, flag }: { host: string; port: number; flag: string },
): string {
  const code = error instanceof Error && "code" in error ? error.code : "";
  if (code === "EADDRINUSE") return `port ${port} on ${host} is already in use; choose another with ${flag}`;
  if (code === "EACCES")
    return `port ${port} on ${host} requires more privileges; choose one above 1023 with ${flag}`;
  return `cannot listen on ${host}:${port} (${error instanceof Error ? error.message : String(error)})`;
}

/**
 * Stops in order at the first signal, and at once at a second one. Signals within a second count as one,
 * because one Ctrl-C can arrive several times: from the terminal and from each program in between. SIGHUP
 * counts, too: Node does not let `nohup` ignore it, so the server would otherwise end at once when a terminal
 * is closed.
 */
export function onSignal(stop: (signal: string) => Promise<void>): void {
  let firstSignalAt: number | null = null;
  const handle = (signal: string): void => {
    if (firstSignalAt !== null)
      return systemClock.now() - firstSignalAt > 1000 ? process.exit(130) : undefined;
    firstSignalAt = systemClock.now();
    stop(signal).then(
      () => process.exit(0),
      (error: unknown) => {
        process.stderr.write(
          "waypost: stopping failed: " +
            `${error instanceof Error ? (error.stack ?? error.message) : String(error)}\n`,
        );
        process.exit(1);
      },
    );
  };
  for (const signal of ["SIGTERM", "SIGINT", "SIGHUP"] as const) process.on(signal, handle);
}
