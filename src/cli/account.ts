import type { Command } from "commander";
import { makeReadOnlyToken } from "../api/auth/token.ts";
import type { AccountChange } from "../core/commands/account.ts";
import { parseAccountChange, mustFindAccount, isDurationLimit } from "../core/commands/accountRequest.ts";
import { Refusal } from "../core/values/errors.ts";
import type { Account } from "../core/model/message.ts";
import { defaultTimeout, toLimitFlag, limitNames, readLimits, planNames, readPlan } from "../core/accounts/plans.ts";
import type { LimitName } from "../core/model/accountTerms.ts";
import { formatEnvironment } from "../server/credentials.ts";
import type { ServerAdmin } from "../server/accountAdmin.ts";

type AccountCommandContext<Flags> = {
  /** Opens the account administration that the flags name, and closes it. */
  withAdmin<T>(flags: Flags, run: (admin: ServerAdmin) => Promise<T>): Promise<T>;
  /** Adds the flags that say where the store is. */
  withStoreFlags(command: Command): Command;
  print(line: string): void;
};

type AccountFlags = { plan?: string; reservedPrice?: string } & Partial<Record<LimitName, string>>;

/** `waypost account …`: accounts, for whoever runs the server. They work while a server runs, and while none does. */
export function addAccountCommands<Flags extends object>(
  program: Command,
  { withAdmin, withStoreFlags, print }: AccountCommandContext<Flags>,
): void {
  const accounts = program.command("account").description("make, look at, limit and disable accounts, also while the server runs");
  const command = (usage: string, about: string): Command => withStoreFlags(accounts.command(usage).description(about));

  withLimitFlags(command("create <name>", "make an account, and print its credentials")).action(
    (name: string, flags: Flags & AccountFlags) =>
      withAdmin(flags, async (admin) => {
        const created = await admin.create({ name, change: parseChange(flags) });
        print(`# ${created.name}\n${formatEnvironment(created, await admin.url())}`);
      }),
  );
  command("list", "list all accounts").action((flags: Flags) =>
    withAdmin(flags, async (admin) => {
      for (const account of await admin.accounts()) print(formatAccountLine(account));
    }),
  );
  command("show <account>", "show an account, named by its id or its name, with its limits").action((idOrName: string, flags: Flags) =>
    withAdmin(flags, async (admin) => print(formatAccount(await findAccount(admin, idOrName)))),
  );
  withLimitFlags(command("limits <account>", "set the plan of an account, or limits of its own; the word plan takes one back")).action(
    (idOrName: string, flags: Flags & AccountFlags) =>
      withAdmin(flags, async (admin) => {
        const account = await findAccount(admin, idOrName);
        print(formatAccount(await admin.change(account.id, parseChange(flags))));
      }),
  );
  command("delete <account>", "delete an account that is disabled, and all that it has; its log goes in its time").action(
    (idOrName: string, flags: Flags) =>
      withAdmin(flags, async (admin) => {
        const { id, name } = await findAccount(admin, idOrName);
        await admin.delete(id);
        print(`${id}  deleted  ${name}`);
      }),
  );
  command("webhooks <account> <on|off>", "sign deliveries by Standard Webhooks besides, or not").action(
    (idOrName: string, onOrOff: string, flags: Flags) =>
      withAdmin(flags, async (admin) => {
        if (onOrOff !== "on" && onOrOff !== "off") throw new Refusal("invalid", `${onOrOff}: it is neither on nor off`);
        print(formatAccount(await admin.change((await findAccount(admin, idOrName)).id, { signsStandard: onOrOff === "on" })));
      }),
  );
  for (const [verb, state, about] of [
    ["disable", "passive", "let an account read, and change nothing any more"],
    ["enable", "active", "let an account that was disabled go on"],
  ] as const)
    command(`${verb} <account>`, about).action((idOrName: string, flags: Flags) =>
      withAdmin(flags, async (admin) => print(formatAccountLine(await admin.change((await findAccount(admin, idOrName)).id, { state })))),
    );
}

function withLimitFlags(command: Command): Command {
  command.option("--plan <name>", planNames.join(", "));
  command.option("--reserved-price <dollars>", "what the record names as the price of its plan");
  for (const name of limitNames) {
    const value = isDurationLimit(name) ? "<duration>" : "<n>";
    command.option(`--${toLimitFlag(name)} ${value}`, aboutLimits[name]);
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
const parseChange = (options: AccountFlags): AccountChange => parseAccountChange(options, (field) => `--${toLimitFlag(field)}`);

/** The account that an id or a name means. Throws `Refusal`. */
export const findAccount = async (admin: ServerAdmin, idOrName: string): Promise<Account> =>
  mustFindAccount(await admin.accounts(), idOrName);

const formatAccountLine = (account: Account): string =>
  `${account.id}  ${account.state ?? "active"}  ${readPlan(account)}  ${account.name}`;

const formatDropped = ({ log, deadLetters }: NonNullable<Account["dropped"]>): string =>
  `${deadLetters} dead letters, ${log} lines of the log`;

/** An account for people; its password and its main token are what `waypost credentials` prints. */
function formatAccount(account: Account): string {
  const limits = readLimits(account);
  const formatLimit = (name: LimitName): string => (isDurationLimit(name) ? `${limits[name] / 1000}s` : String(limits[name]));
  const formatOwn = (name: LimitName): string => (account.limits?.[name] === undefined ? "" : "  (its own)");
  return [
    ...[`id: ${account.id}`, `name: ${account.name}`, `state: ${account.state ?? "active"}`, `plan: ${readPlan(account)}`],
    `Standard Webhooks: ${account.signsStandard ? "on" : "off"}`,
    ...[`made: ${new Date(account.createdAt).toISOString()}`, `read-only token: ${makeReadOnlyToken(account)}`],
    ...(account.dropped ? [`left because there were too many: ${formatDropped(account.dropped)}`] : []),
    ...(typeof account.reservedPrice === "number" ? [`reserved-price: ${account.reservedPrice}  (its own)`] : []),
    `default-timeout: ${defaultTimeout(account) / 1000}s`,
    ...limitNames.map((name) => `${toLimitFlag(name)}: ${formatLimit(name)}${formatOwn(name)}`),
  ].join("\n");
}
