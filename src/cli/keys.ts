import { readFileSync } from "node:fs";
import type { Command } from "commander";
import type { ServerAdmin } from "../server/accountAdmin.ts";
import { KeysRefused, formatKeyLines, writeKeys } from "../server/encryptionKeys.ts";
import type { KeySource } from "../store/sql/keyRing.ts";
import { makeKeyLine, readKeyRing } from "../store/sql/keyRing.ts";

type KeyCommandContext<Flags> = {
  /** Opens the account administration that the flags name, and closes it. */
  withAdmin<T>(flags: Flags, run: (admin: ServerAdmin) => Promise<T>): Promise<T>;
  /** Where the flags say that the keys are, and whether other nodes may use them. */
  readKeySource(flags: Flags): { source: KeySource; isShared: boolean };
  withStoreFlags(command: Command): Command;
  print(line: string): void;
};

/** `waypost keys …`: the keys that secrets are sealed with. They work while a server runs, and while none does. */
export function addKeyCommands<Flags extends object>(
  program: Command,
  { withAdmin, readKeySource, withStoreFlags, print }: KeyCommandContext<Flags>,
): void {
  const keys = program
    .command("keys")
    .description("look at, and rotate, the keys that secrets are sealed with, also while the server runs");
  const command = (usage: string, about: string): Command => withStoreFlags(keys.command(usage).description(about));
  const reencrypt = (flags: Flags): Promise<void> =>
    withAdmin(flags, async (admin) =>
      print(`${await admin.sealAgain()} rows sealed again, with key ${readCurrentVersion(requireKeySource(readKeySource(flags).source))}`),
    );

  keys
    .command("new")
    .description("print a new key, for WAYPOST_KEYS or the file that WAYPOST_KEYS_FILE names")
    .argument("[version]", "its version, which no other key of the store has had", "1")
    .action((version: string) => {
      if (!/^[1-9]\d{0,8}$/.test(version)) throw new KeysRefused(`version: ${version} is not a whole number from 1`);
      print(makeKeyLine(Number(version)));
    });
  command("show", "list the versions of the keys, and how many rows each has sealed").action((flags: Flags) =>
    withAdmin(flags, async (admin) => {
      const { source } = readKeySource(flags);
      const uses = new Map(await admin.keyUse());
      const versions = source === null ? [] : readKeyRing(source).map(({ version }) => version);
      for (const [index, version] of versions.entries())
        print(`${version}  ${uses.get(version) ?? 0} rows${index === 0 ? "  (seals what is written now)" : ""}`);
      if (uses.has("clear")) print(`in clear  ${uses.get("clear") ?? 0} rows`);
    }),
  );
  command("rotate", "add a key, and seal everything again with it").action(async (flags: Flags) => {
    const file = requireKeysFile(readKeySource(flags));
    const lines = formatKeyLines(readFileSync(file, "utf8"), file);
    const highest = Math.max(...lines.map((line) => Number.parseInt(line, 10)));
    // Written before anything is sealed with it.
    writeKeys(file, [makeKeyLine(highest + 1), ...lines]);
    await reencrypt(flags);
  });
  command("reseal", "seal with the first key whatever is not: goes on with a rotate that was broken off").action(reencrypt);
  command("forget <version>", "remove a key that nothing is sealed with any more").action((version: string, flags: Flags) =>
    withAdmin(flags, async (admin) => {
      const file = requireKeysFile(readKeySource(flags));
      const lines = formatKeyLines(readFileSync(file, "utf8"), file);
      const position = lines.findIndex((line) => line.startsWith(`${version}:`));
      if (position < 0) throw new KeysRefused(`${version}: there is no such key in ${file}`);
      if (position === 0)
        throw new KeysRefused(`${version}: it is the key that seals what is written now; "waypost keys rotate" makes another one`);
      const rows = new Map(await admin.keyUse()).get(Number(version)) ?? 0;
      if (rows > 0) throw new KeysRefused(`${version}: ${rows} rows are sealed with it; "waypost keys reseal" first`);
      writeKeys(file, lines.toSpliced(position, 1));
      print(`${version}  forgotten`);
    }),
  );
}

function requireKeySource(source: KeySource): NonNullable<KeySource> {
  if (source) return source;
  throw new KeysRefused(
    'WAYPOST_KEYS: not set, so secrets are in clear; set it to what "waypost keys new" prints, the same for all nodes, and start them again',
  );
}

const readCurrentVersion = (source: NonNullable<KeySource>): number => readKeyRing(source)[0].version;

/** The file in which keys can be changed for whoever uses it, at once. */
function requireKeysFile({ source, isShared }: { source: KeySource; isShared: boolean }): string {
  const keySource = requireKeySource(source);
  if ("file" in keySource && !isShared) return keySource.file;
  const steps = [
    'print a key with "waypost keys new <version>"',
    "put it behind the others, and start each node again with that",
    "put it before the others, and start each node again",
    '"waypost keys reseal"',
    'take the old one away when "waypost keys show" says that it has no rows',
  ];
  throw new KeysRefused(
    `keys: they are ${isShared ? "those of several nodes" : "in a setting"}, so they are changed by hand: ${steps.map((step, at) => `${at + 1}. ${step}`).join("; ")}`,
  );
}
