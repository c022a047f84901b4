import type { Command } from "commander";
import { hashOfToken, newTokenOf } from "../api/auth/token.ts";
import { findAccount } from "./account.ts";
import { parseDuration } from "../core/values/duration.ts";
import { Refusal } from "../core/values/errors.ts";
import type { Millis } from "../core/model/message.ts";
import type { Token } from "../core/model/rights.ts";
import { verbs } from "../core/model/rights.ts";
import type { Desk } from "../server/accountAdmin.ts";

type Parts<Flags> = {
  /** Opens the desk that the flags name, and closes it. */
  atDesk<T>(flags: Flags, run: (desk: Desk) => Promise<T>): Promise<T>;
  /** Adds the flags that say where the store is. */
  withStore(command: Command): Command;
  now(): Millis;
  print(line: string): void;
};

type Options = { verbs: string; to?: string[]; expires?: string; name?: string };

/** `waypost token …`: tokens with rights of their own. They work while a server runs, and while none does. */
export function tokenCommands<Flags extends object>(program: Command, { atDesk, withStore, now, print }: Parts<Flags>): void {
  const tokens = program.command("token").description("make, list and revoke tokens with rights of their own, also while the server runs");
  const command = (usage: string, about: string): Command => withStore(tokens.command(usage).description(about));

  command("create <account>", "make a token, and print it; it is shown only once")
    .requiredOption("--verbs <list>", `what it may be used for: ${verbs.join(", ")}`)
    .option("--to <pattern...>", "where it may publish to, such as https://example.com/in/*, queue:orders, group:orders-*")
    .option("--expires <duration>", "when it ends, such as 30d; not given: never")
    .option("--name <text>", "for people")
    .action((named: string, flags: Flags & Options) =>
      atDesk(flags, async (desk) => {
        const { id: account } = await findAccount(desk, named);
        const token = newTokenOf(account);
        const { to = [], name = "" } = flags;
        const asked = { name, verbs: verbsIn(flags.verbs), destinations: to, expiresAt: expiryOf(flags.expires, now()) };
        const made = await desk.createToken({ account, hash: hashOfToken(token), ...asked });
        print(`# ${lineOf(made)}\n${token}`);
      }),
    );
  command("list <account>", "list the tokens of an account, besides its own two").action((named: string, flags: Flags) =>
    atDesk(flags, async (desk) => {
      for (const token of await desk.tokens((await findAccount(desk, named)).id)) print(lineOf(token));
    }),
  );
  command("revoke <account> <token>", "end a token, named by its id, at once").action((named: string, id: string, flags: Flags) =>
    atDesk(flags, async (desk) => {
      const { revoked } = await desk.revokeToken((await findAccount(desk, named)).id, id);
      if (!revoked) throw new Refusal("invalid", `${id}: there is no such token; waypost token list ${named} lists those there are`);
      print(`${id}  revoked`);
    }),
  );
}

function verbsIn(written: string): Token["verbs"] {
  const asked = written.split(",").map((one) => one.trim());
  const stranger = asked.find((one) => !verbs.some((verb) => verb === one));
  if (stranger !== undefined) throw new Refusal("invalid", `--verbs: ${stranger} is none of ${verbs.join(", ")}`);
  return verbs.filter((verb) => asked.includes(verb));
}

function expiryOf(written: string | undefined, now: Millis): Millis | null {
  if (written === undefined) return null;
  const span = parseDuration(written);
  if (span === null) throw new Refusal("invalid", `--expires: ${written} is no duration such as 12h or 30d`);
  return now + span;
}

const timeOf = (time: Millis | null): string => (time === null ? "never" : new Date(time).toISOString());

const lineOf = ({ id, name, verbs: may, destinations, expiresAt, usedAt }: Token): string =>
  [
    ...[id, may.join(","), destinations.join(" ") || "everywhere"],
    ...[`ends ${timeOf(expiresAt)}`, `used ${timeOf(usedAt)}`, ...(name ? [name] : [])],
  ].join("  ");
