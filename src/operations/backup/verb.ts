import type { Command } from "commander";
import type { ServerConfig } from "../../settings/config.ts";
import { backupStore, restoreStore } from "./backup.ts";

/** The parts of the command line that the commands for backups use. */
type BackupTools<Flags> = {
  withStoreFlags(command: Command): Command;
  readSettings(flags: Flags): ServerConfig;
  print(line: string): void;
};

/** Adds the commands `backup` and `restore`. */
export function addBackupCommands<Flags>(
  program: Command,
  { withStoreFlags, readSettings, print }: BackupTools<Flags>,
): void {
  withStoreFlags(
    program
      .command("backup")
      .argument("<file>", "new file for the copy")
      .option("--with-keys", "also write the encryption keys, to <file>.keys")
      .description("copy the store of a data folder into a file, also while its server runs"),
  ).action(async (file: string, flags: Flags & { withKeys?: boolean }) => {
    const settings = readSettings(flags);
    const report = await backupStore(settings, file, { withKeys: flags.withKeys ?? false, report: print });
    print(`backed up ${formatSize(report.bytes)} to ${file} in ${formatTime(report.took)}`);
    if (report.keysFile !== null) print(`the keys are in ${report.keysFile}; keep them in another place`);
    if (report.missingKeys !== null)
      print(
        `the keys are not in it: keep a copy of ${report.missingKeys} in another place, ` +
          "or use --with-keys. Without the keys, the backup cannot be restored",
      );
    if (report.damage === null) return;
    process.stderr.write(
      `waypost: ${settings.data}: damaged: ${report.damage}; the backup has the same damage; ` +
        "keep an earlier backup, and check the disk and the memory of the machine\n",
    );
    process.exitCode = damagedExitCode;
  });

  withStoreFlags(
    program
      .command("restore")
      .argument("<file>", "file that waypost backup has written, or a folder of --replicate")
      .option("--force", "take a backup that is damaged, but whose pages are intact")
      .description("put a backup or a replica into a data folder that has no store"),
  ).action(async (file: string, flags: Flags & { force?: boolean }) => {
    const settings = readSettings(flags);
    const { bytes, took, endedAt } = await restoreStore(settings, file, {
      force: flags.force ?? false,
      report: print,
    });
    print(`restored ${formatSize(bytes)} to ${settings.data} in ${formatTime(took)}`);
    if (endedAt !== null) print(`the last change that it has is of ${new Date(endedAt).toISOString()}`);
    print(
      "a server that starts on it sends what is due, also what was delivered after the backup; " +
        `to look first: waypost start --hold --data ${settings.data}`,
    );
  });
}

/** The exit code of a backup that was written, of a store that is damaged. */
const damagedExitCode = 3;

const formatSize = (bytes: number): string => `${(bytes / 1_000_000).toFixed(1)} MB`;
const formatTime = (milliseconds: number): string => `${(milliseconds / 1000).toFixed(1)} s`;
