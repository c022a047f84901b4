import type { Command } from "commander";
import { hashToken, makeRandomToken } from "../../api/auth/token.ts";
import { findAccount } from "./account.ts";
import { longestDuration, parseDuration } from "../../engine/core/values/duration.ts";
import { Refusal } from "../../engine/core/values/errors.ts";
import type { Millis } from "../../engine/core/values/basics.ts";
import type { Token } from "../../engine/core/model/rights.ts";
import { verbs } from "../../engine/core/model/rights.ts";
import type { ServerAdmin } from "../accountAdmin.ts";

/** The functions that the token commands use. */
type TokenCommandContext<Flags> = {
  /** Opens the account administration that the flags name, and closes it afterwards. */
  withAdmin<T>(flags: Flags, run: (admin: ServerAdmin) => Promise<T>): Promise<T>;
  /** Adds the flags that locate the store. */
  withStoreFlags(command: Command): Command;
  now(): Millis;
  print(line: string): void;
};

type TokenFlags = { verbs: string; to?: string[]; expires?: string; name?: string };

/**
 * Adds the commands `waypost token …`, for tokens with limited rights. They work with and without a running
 * server.
 */
export function addTokenCommands<Flags extends object>(
  program: Command,
  { withAdmin, withStoreFlags, now, print }: TokenCommandContext<Flags>,
): void {
  const tokens = program
    .command("token")
    .description("create, list and revoke tokens with limited rights; the server may be running");
  const command = (usage: string, about: string): Command =>
    withStoreFlags(tokens.command(usage).description(about));

  command("create <account>", "create a token and print it; it is shown only once")
    .requiredOption("--verbs <list>", `rights of the token: ${verbs.join(", ")}`)
    .option(
      "--to <pattern...>",
      "destinations it may publish to, such as https://example.com/in/*, queue:orders, group:orders-*",
    )
    .option("--expires <duration>", "time until it expires, such as 30d; default: never")
    .option("--name <text>", "name shown in lists")
    .action((idOrName: string, flags: Flags & TokenFlags) =>
      withAdmin(flags, async (admin) => {
        const { id: account } = await findAccount(admin, idOrName);
        const token = makeRandomToken(account);
        const { to = [], name = "" } = flags;
        const request = {
          name,
          verbs: parseVerbs(flags.verbs),
          destinations: to,
          expiresAt: parseExpiry(flags.expires, now()),
        };
        const created = await admin.createToken({ account, hash: hashToken(token), ...request });
        print(`# ${formatToken(created)}\n${token}`);
      }),
    );
  command("list <account>", "list an account's tokens, except the main and the read-only token").action(
    (idOrName: string, flags: Flags) =>
      withAdmin(flags, async (admin) => {
        for (const token of await admin.tokens((await findAccount(admin, idOrName)).id))
          print(formatToken(token));
      }),
  );
  command("revoke <account> <token>", "revoke a token by its id, effective at once").action(
    (idOrName: string, id: string, flags: Flags) =>
      withAdmin(flags, async (admin) => {
        const { revoked } = await admin.revokeToken((await findAccount(admin, idOrName)).id, id);
        if (!revoked)
          throw new Refusal(
            "invalid",
            `${id}: token does not exist; "waypost token list ${idOrName}" lists all tokens`,
          );
        print(`${id}  revoked`);
      }),
  );
}

function parseVerbs(text: string): Token["verbs"] {
  const requested = text.split(",").map((one) => one.trim());
  const unknown = requested.find((one) => !verbs.some((verb) => verb === one));
  if (unknown !== undefined)
    throw new Refusal("invalid", `--verbs: "${unknown}" is unknown; use ${verbs.join(", ")}`);
  return verbs.filter((verb) => requested.includes(verb));
}

function parseExpiry(text: string | undefined, now: Millis): Millis | null {
  if (text === undefined) return null;
  const span = parseDuration(text);
  if (span === null)
    throw new Refusal(
      "invalid",
      `--expires: "${text}" is not a duration of at most ${longestDuration}; use a value such as 12h or 30d`,
    );
  return now + span;
}

const formatTime = (time: Millis | null): string => (time === null ? "never" : new Date(time).toISOString());

const formatToken = ({ id, name, verbs: allowed, destinations, expiresAt, usedAt }: Token): string =>
  [
    id,
    allowed.join(","),
    destinations.join(" ") || "everywhere",
    `ends ${formatTime(expiresAt)}`,
    `used ${formatTime(usedAt)}`,
    ...(name ? [name] : []),
  ].join("  ");
