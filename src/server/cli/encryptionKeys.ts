import { readFileSync } from "node:fs";
import type { Command } from "commander";
import type { ServerAdmin } from "../accountAdmin.ts";
import { KeysRefused, formatKeyLines, writeKeys } from "../../settings/encryptionKeys.ts";
import type { KeySource } from "../../engine/store/layout/keyRing.ts";
import { makeKeyLine, readKeyRing } from "../../engine/store/layout/keyRing.ts";

/** The functions that the key commands use. */
type KeyCommandContext<Flags> = {
  /** Opens the account administration that the flags name, and closes it afterwards. */
  withAdmin<T>(flags: Flags, run: (admin: ServerAdmin) => Promise<T>): Promise<T>;
  /** Returns where the keys are according to the flags, and whether other nodes may use them. */
  readKeySource(flags: Flags): { source: KeySource; isShared: boolean };
  withStoreFlags(command: Command): Command;
  print(line: string): void;
};

/**
 * Adds the commands `waypost keys …`, which manage the keys that encrypt secrets. They work with and without
 * a running server.
 */
export function addKeyCommands<Flags extends object>(
  program: Command,
  { withAdmin, readKeySource, withStoreFlags, print }: KeyCommandContext<Flags>,
): void {
  const keys = program
    .command("keys")
    .description("show and rotate the keys that encrypt secrets; the server may be running");
  const command = (usage: string, about: string): Command =>
    withStoreFlags(keys.command(usage).description(about));
  const reencrypt = async (admin: ServerAdmin, flags: Flags): Promise<void> => {
    const rows = await admin.sealAgain();
    const version = readCurrentVersion(requireKeySource(readKeySource(flags).source));
    print(`${rows} rows encrypted again, with key ${version}`);
  };

  keys
    .command("new")
    .description("print a new key for WAYPOST_KEYS or the file in WAYPOST_KEYS_FILE")
    .argument("[version]", "version of the key; must differ from all earlier keys of the store", "1")
    .action((version: string) => {
      if (!/^[1-9]\d{0,8}$/.test(version))
        throw new KeysRefused(`version: ${version} is not a whole number from 1 to 999999999`);
      print(makeKeyLine(Number(version)));
    });
  command("show", "list the versions of the keys and how many rows each encrypts").action((flags: Flags) =>
    withAdmin(flags, async (admin) => {
      const { source } = readKeySource(flags);
      const uses = new Map(await admin.keyUse());
      const versions = source === null ? [] : readKeyRing(source).map(({ version }) => version);
      for (const [index, version] of versions.entries())
        print(`${version}  ${uses.get(version) ?? 0} rows${index === 0 ? "  (encrypts new data)" : ""}`);
      if (uses.has("clear")) print(`unencrypted  ${uses.get("clear") ?? 0} rows`);
    }),
  );
  command("rotate", "add a key and encrypt everything again with it").action((flags: Flags) => {
    const file = requireKeysFile(readKeySource(flags));
    return withAdmin(flags, async (admin) => {
      // A server that does not respond would leave a key that encrypts nothing.
      await admin.url();
      const lines = formatKeyLines(readFileSync(file, "utf8"), file);
      const highest = Math.max(...lines.map((line) => Number.parseInt(line, 10)));
      // The key must be on disk before anything is encrypted with it.
      writeKeys(file, [makeKeyLine(highest + 1), ...lines]);
      await reencrypt(admin, flags);
    });
  });
  command("reseal", "encrypt all secrets again with the first key; continues an interrupted rotate").action(
    (flags: Flags) => withAdmin(flags, (admin) => reencrypt(admin, flags)),
  );
  command("forget <version>", "remove a key that no longer encrypts anything").action(
    (version: string, flags: Flags) =>
      withAdmin(flags, async (admin) => {
        const file = requireKeysFile(readKeySource(flags));
        const lines = formatKeyLines(readFileSync(file, "utf8"), file);
        const position = lines.findIndex((line) => line.startsWith(`${version}:`));
        if (position < 0) throw new KeysRefused(`${version}: key does not exist in ${file}`);
        if (position === 0)
          throw new KeysRefused(`${version}: this key encrypts new data; run "waypost keys rotate" first`);
        const rows = new Map(await admin.keyUse()).get(Number(version)) ?? 0;
        if (rows > 0)
          throw new KeysRefused(
            `${version}: ${rows} rows are encrypted with it; run "waypost keys reseal" first`,
          );
        writeKeys(file, lines.toSpliced(position, 1));
        print(`${version}  forgotten`);
      }),
  );
}

function requireKeySource(source: KeySource): NonNullable<KeySource> {
  if (source) return source;
  throw new KeysRefused(
    "WAYPOST_KEYS: not set, so secrets are unencrypted; " +
      'set it to the output of "waypost keys new" on all nodes, and restart them',
  );
}

const readCurrentVersion = (source: NonNullable<KeySource>): number => readKeyRing(source)[0].version;

/**
 * Returns the path of the keys file. Throws if several nodes use the keys or if a setting has them, because
 * this command could not change them everywhere at once.
 */
function requireKeysFile({ source, isShared }: { source: KeySource; isShared: boolean }): string {
  const keySource = requireKeySource(source);
  if ("file" in keySource && !isShared) return keySource.file;
  const steps = [
    'print a key with "waypost keys new <version>"',
    "add it after the others on each node, and restart the nodes",
    "move it before the others on each node, and restart the nodes",
    'run "waypost keys reseal"',
    'remove the old key when "waypost keys show" reports 0 rows for it',
  ];
  const place = isShared ? "used by several nodes" : "in a setting";
  throw new KeysRefused(
    `keys: ${place}, so change them by hand: ${steps.map((step, at) => `${at + 1}. ${step}`).join("; ")}`,
  );
}
