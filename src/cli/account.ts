import type { Command } from "commander";
import { readOnlyTokenOf } from "../api/auth/token.ts";
import type { AccountChange } from "../core/commands/account.ts";
import { accountChangeOf, accountNamed, isTime } from "../core/commands/accountAsked.ts";
import { Refusal } from "../core/values/errors.ts";
import type { Account } from "../core/model/message.ts";
import { defaultTimeout, flagOfLimit, limitNames, limitsOf, planNames, planOf } from "../core/accounts/plans.ts";
import type { LimitName } from "../core/model/accountTerms.ts";
import { environmentLines } from "../server/credentials.ts";
import type { Desk } from "../server/accountAdmin.ts";

type Parts<Flags> = {
  /** Opens the desk that the flags name, and closes it. */
  atDesk<T>(flags: Flags, run: (desk: Desk) => Promise<T>): Promise<T>;
  /** Adds the flags that say where the store is. */
  withStore(command: Command): Command;
  print(line: string): void;
};

type Options = { plan?: string; reservedPrice?: string } & Partial<Record<LimitName, string>>;

/** `waypost account …`: accounts, for whoever runs the server. They work while a server runs, and while none does. */
export function accountCommands<Flags extends object>(program: Command, { atDesk, withStore, print }: Parts<Flags>): void {
  const accounts = program.command("account").description("make, look at, limit and disable accounts, also while the server runs");
  const command = (usage: string, about: string): Command => withStore(accounts.command(usage).description(about));

  withLimits(command("create <name>", "make an account, and print its credentials")).action((name: string, flags: Flags & Options) =>
    atDesk(flags, async (desk) => {
      const made = await desk.create({ name, change: changeOf(flags) });
      print(`# ${made.name}\n${environmentLines(made, await desk.url())}`);
    }),
  );
  command("list", "list all accounts").action((flags: Flags) =>
    atDesk(flags, async (desk) => {
      for (const account of await desk.accounts()) print(lineOf(account));
    }),
  );
  command("show <account>", "show an account, named by its id or its name, with its limits").action((named: string, flags: Flags) =>
    atDesk(flags, async (desk) => print(textOf(await findAccount(desk, named)))),
  );
  withLimits(command("limits <account>", "set the plan of an account, or limits of its own; the word plan takes one back")).action(
    (named: string, flags: Flags & Options) =>
      atDesk(flags, async (desk) => {
        const account = await findAccount(desk, named);
        print(textOf(await desk.change(account.id, changeOf(flags))));
      }),
  );
  command("delete <account>", "delete an account that is disabled, and all that it has; its log goes in its time").action(
    (named: string, flags: Flags) =>
      atDesk(flags, async (desk) => {
        const { id, name } = await findAccount(desk, named);
        await desk.delete(id);
        print(`${id}  deleted  ${name}`);
      }),
  );
  command("webhooks <account> <on|off>", "sign deliveries by Standard Webhooks besides, or not").action(
    (named: string, written: string, flags: Flags) =>
      atDesk(flags, async (desk) => {
        if (written !== "on" && written !== "off") throw new Refusal("invalid", `${written}: it is neither on nor off`);
        print(textOf(await desk.change((await findAccount(desk, named)).id, { signsStandard: written === "on" })));
      }),
  );
  for (const [verb, state, about] of [
    ["disable", "passive", "let an account read, and change nothing any more"],
    ["enable", "active", "let an account that was disabled go on"],
  ] as const)
    command(`${verb} <account>`, about).action((named: string, flags: Flags) =>
      atDesk(flags, async (desk) => print(lineOf(await desk.change((await findAccount(desk, named)).id, { state })))),
    );
}

function withLimits(command: Command): Command {
  command.option("--plan <name>", planNames.join(", "));
  command.option("--reserved-price <dollars>", "what the record names as the price of its plan");
  for (const name of limitNames) {
    const value = isTime(name) ? "<duration>" : "<n>";
    command.option(`--${flagOfLimit(name)} ${value}`, aboutLimits[name]);
  }
  return command;
}

const aboutLimits: Partial<Record<LimitName, string>> = {
  messageBytes: "bytes of a message",
  retries: "retries that a message may ask for",
  delay: "delay that a message may ask for",
  timeout: "timeout that a message may ask for",
  parallelism: "messages under way at once in a queue; deliveries in flight to one endpoint, beyond which others wait",
  queues: "queues, as far as the server allows them",
  schedules: "schedules",
  groups: "URL groups",
  endpoints: "endpoints of a URL group",
  sources: "sources",
  requestsPerDay: "requests in a day, beyond which there is a warning",
  requestsPerDayHard: "requests in a day, beyond which they are refused",
  tokens: "tokens, besides its own two",
  deadLetterRetention: "how long dead letters are kept, as far as the server keeps them",
  logRetention: "how long logs of messages and of runs are kept, as far as the server keeps them",
  auditRetention: "how long the audit log is kept, as far as the server keeps it",
  globalParallelism: "deliveries under way at once; others wait",
  deadLetters: "dead letters; the oldest leave first",
  logEntries: "lines of the log; the oldest leave first",
  auditEntries: "entries of the audit log; the oldest leave first",
  requestsPerSecond: "requests in a second, those that publish not counted",
  storageBytes: "bytes stored: bodies, logs, dead letters, runs, schedules, audit log; beyond it nothing new is published",
};

/** The plan and the limits that were given. */
const changeOf = (options: Options): AccountChange => accountChangeOf(options, (field) => `--${flagOfLimit(field)}`);

/** The account that an id or a name means. Throws `Refusal`. */
export const findAccount = async (desk: Desk, named: string): Promise<Account> => accountNamed(await desk.accounts(), named);

const lineOf = (account: Account): string => `${account.id}  ${account.state ?? "active"}  ${planOf(account)}  ${account.name}`;

const droppedOf = ({ log, deadLetters }: NonNullable<Account["dropped"]>): string => `${deadLetters} dead letters, ${log} lines of the log`;

/** An account for people; its password and its main token are what `waypost credentials` prints. */
function textOf(account: Account): string {
  const held = limitsOf(account);
  const shown = (name: LimitName): string => (isTime(name) ? `${held[name] / 1000}s` : String(held[name]));
  const whose = (name: LimitName): string => (account.limits?.[name] === undefined ? "" : "  (its own)");
  return [
    ...[`id: ${account.id}`, `name: ${account.name}`, `state: ${account.state ?? "active"}`, `plan: ${planOf(account)}`],
    `Standard Webhooks: ${account.signsStandard ? "on" : "off"}`,
    ...[`made: ${new Date(account.createdAt).toISOString()}`, `read-only token: ${readOnlyTokenOf(account)}`],
    ...(account.dropped ? [`left because there were too many: ${droppedOf(account.dropped)}`] : []),
    ...(typeof account.reservedPrice === "number" ? [`reserved-price: ${account.reservedPrice}  (its own)`] : []),
    `default-timeout: ${defaultTimeout(account) / 1000}s`,
    ...limitNames.map((name) => `${flagOfLimit(name)}: ${shown(name)}${whose(name)}`),
  ].join("\n");
}
