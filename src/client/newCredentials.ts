import { randomUUID } from "node:crypto";
import type { Command } from "commander";
import type { ClientContext } from "./api.ts";
import { systemClock, systemRandom } from "../engine/clock/clock.ts";
import { createIdGenerator } from "../engine/core/values/ids.ts";
import { makeToken } from "../engine/core/values/tokenText.ts";
import { parseServerUrl } from "./storedLogin.ts";
import { print } from "./terminal/terminal.ts";

/** Reports whether the arguments ask for credentials of a server that has not been started yet. */
export const asksForNewCredentials = (args: readonly string[]): boolean =>
  args[0] === "credentials" && args.includes("--new");

/** Adds the command `waypost credentials --new`, which needs no server, no store and no network. */
export function addNewCredentials(program: Command, { environment }: ClientContext): void {
  program
    .command("credentials")
    .description("print credentials for a server that has not been started yet")
    .requiredOption("--new", "make new credentials")
    .option("--public-url <url>", "URL where clients will reach the server\n(WAYPOST_PUBLIC_URL)")
    .action(({ publicUrl = environment["WAYPOST_PUBLIC_URL"] }: { publicUrl?: string }) =>
      print(formatNewCredentials(publicUrl === undefined ? null : parseServerUrl("--public-url", publicUrl))),
    );
}

/**
 * Returns new credentials as lines of an `.env` file: those that the server takes at its first start, and
 * those that its clients read. The values have no quotes, because not every reader of such files removes
 * them.
 */
function formatNewCredentials(url: string | null): string {
  const newId = createIdGenerator(systemRandom);
  const makeSecret = (): string => newId("sig", systemClock.now());
  const token = makeToken(randomUUID(), makeSecret().replace(/^sig_/, ""));
  const [current, next] = [makeSecret(), makeSecret()];
  return [
    "# For the server, which takes them at its first start. Keep them secret.",
    `WAYPOST_OWNER_TOKEN=${token}`,
    `WAYPOST_SIGNING_KEY=${current}`,
    `WAYPOST_NEXT_SIGNING_KEY=${next}`,
    url === null
      ? "# For clients, which also need QSTASH_URL: the address of the server."
      : `# For clients.\nQSTASH_URL=${url}`,
    `QSTASH_TOKEN=${token}`,
    `QSTASH_CURRENT_SIGNING_KEY=${current}`,
    `QSTASH_NEXT_SIGNING_KEY=${next}`,
  ].join("\n");
}
