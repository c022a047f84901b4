import type { Command } from "commander";
import type { AccountChange } from "../../engine/core/model/account.ts";
import {
  isDurationLimit,
  requireNamedAccount,
  parseAccountChange,
} from "../../engine/core/accounts/accountRequest.ts";
import type { Account } from "../../engine/core/model/account.ts";
import { Refusal } from "../../engine/core/values/errors.ts";
import {
  defaultTimeout,
  followsServer,
  isUnlimited,
  limitNames,
  readLimits,
  planNames,
  readPlan,
} from "../../engine/core/accounts/plans.ts";
import { aboutLimits } from "../../api/fields/aboutLimits.ts";
import { toLimitFlag } from "../../api/http/remedies.ts";
import type { LimitName } from "../../engine/core/model/accountTerms.ts";
import { formatEnvironment } from "../../settings/credentials.ts";
import type { ServerAdmin } from "../accountAdmin.ts";

/** The functions that the account commands use. */
type AccountCommandContext<Flags> = {
  /** Opens the account administration that the flags name, and closes it afterwards. */
  withAdmin<T>(flags: Flags, run: (admin: ServerAdmin) => Promise<T>): Promise<T>;
  /** Adds the flags that locate the store. */
  withStoreFlags(command: Command): Command;
  print(line: string): void;
};

type AccountFlags = { plan?: string; reservedPrice?: string } & Partial<Record<LimitName, string>>;

/**
 * Adds the commands `waypost account …`, with which the operator manages accounts. They work with and without
 * a running server.
 */
export function addAccountCommands<Flags extends object>(
  program: Command,
  { withAdmin, withStoreFlags, print }: AccountCommandContext<Flags>,
): void {
  const accounts = program
    .command("account")
    .description("create, show, limit and disable accounts; the server may be running");
  const command = (usage: string, about: string): Command =>
    withStoreFlags(accounts.command(usage).description(about));

  withLimitFlags(command("create <name>", "create an account and print its credentials")).action(
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
  command("show <account>", "show an account and its limits, by id or name").action(
    (idOrName: string, flags: Flags) =>
      withAdmin(flags, async (admin) => print(formatAccount(await findAccount(admin, idOrName)))),
  );
  withLimitFlags(
    command(
      "limits <account>",
      'set the plan or individual limits of an account; the value "plan" removes an override',
    ),
  ).action((idOrName: string, flags: Flags & AccountFlags) =>
    withAdmin(flags, async (admin) => {
      const account = await findAccount(admin, idOrName);
      print(formatAccount(await admin.change(account.id, parseChange(flags))));
    }),
  );
  command(
    "delete <account>",
    "delete a disabled account and its data; its logs stay until their retention ends",
  ).action((idOrName: string, flags: Flags) =>
    withAdmin(flags, async (admin) => {
      const { id, name } = await findAccount(admin, idOrName);
      await admin.delete(id);
      print(`${id}  deleted  ${name}`);
    }),
  );
  command("webhooks <account> <on|off>", "turn additional signatures by Standard Webhooks on or off").action(
    (idOrName: string, onOrOff: string, flags: Flags) =>
      withAdmin(flags, async (admin) => {
        if (onOrOff !== "on" && onOrOff !== "off")
          throw new Refusal("invalid", `${onOrOff}: unknown value; use on or off`);
        print(
          formatAccount(
            await admin.change((await findAccount(admin, idOrName)).id, { signsStandard: onOrOff === "on" }),
          ),
        );
      }),
  );
  addHostsCommand(command, { withAdmin, print });
  for (const [verb, state, about] of [
    ["disable", "passive", "make an account read-only"],
    ["enable", "active", "re-enable a disabled account"],
  ] as const)
    command(`${verb} <account>`, about).action((idOrName: string, flags: Flags) =>
      withAdmin(flags, async (admin) =>
        print(formatAccountLine(await admin.change((await findAccount(admin, idOrName)).id, { state }))),
      ),
    );
}

/** Adds the command `waypost account hosts`. */
function addHostsCommand<Flags extends object>(
  command: (usage: string, about: string) => Command,
  { withAdmin, print }: Pick<AccountCommandContext<Flags>, "withAdmin" | "print">,
): void {
  command(
    "hosts <account> <hosts...>",
    'set the hosts that an account may send to, such as api.example.com or *.example.com; "any" allows all',
  ).action((idOrName: string, hosts: readonly string[], flags: Flags) =>
    withAdmin(flags, async (admin) => {
      const { id } = await findAccount(admin, idOrName);
      const isAny = hosts.length === 1 && hosts[0] === "any";
      print(formatAccount(await admin.change(id, { allowedHosts: isAny ? null : hosts })));
    }),
  );
}

function withLimitFlags(command: Command): Command {
  command.option("--plan <name>", planNames.join(", "));
  command.option("--reserved-price <dollars>", "price of the plan to show in the account, in dollars");
  for (const name of limitNames) {
    const value = isDurationLimit(name) ? "<duration>" : "<n>";
    command.option(`--${toLimitFlag(name)} ${value}`, aboutLimits[name]);
  }
  return command;
}

/** Returns the plan and the limits that the flags set. */
const parseChange = (options: AccountFlags): AccountChange =>
  parseAccountChange(options, (field) => `--${toLimitFlag(field)}`);

/** Returns the account with this id or name. Throws `Refusal` if there is none. */
export const findAccount = async (admin: ServerAdmin, idOrName: string): Promise<Account> =>
  requireNamedAccount(await admin.accounts(), idOrName);

const formatAccountLine = (account: Account): string =>
  `${account.id}  ${account.state ?? "active"}  ${readPlan(account)}  ${account.name}`;

const formatDropped = ({ log, deadLetters }: NonNullable<Account["dropped"]>): string =>
  `${deadLetters} dead letters, ${log} log entries`;

/** Returns the text of `account show`. It omits the password and the tokens. */
function formatAccount(account: Account): string {
  const limits = readLimits(account);
  const formatLimit = (name: LimitName): string =>
    isUnlimited(name, limits[name])
      ? "no limit"
      : followsServer(name, limits[name])
        ? "as the server"
        : isDurationLimit(name)
          ? `${limits[name] / 1000}s`
          : String(limits[name]);
  const formatOwn = (name: LimitName): string =>
    (account.limits?.[name] === undefined ? "" : "  (its own)") +
    (name === "messageBytes" ? "  (at most --max-body)" : "");
  return [
    `id: ${account.id}`,
    `name: ${account.name}`,
    `state: ${account.state ?? "active"}`,
    `plan: ${readPlan(account)}`,
    `Standard Webhooks: ${account.signsStandard ? "on" : "off"}`,
    `hosts: ${account.allowedHosts?.join(", ") ?? "any"}`,
    `created: ${new Date(account.createdAt).toISOString()}`,
    ...(account.dropped ? [`deleted because of a limit: ${formatDropped(account.dropped)}`] : []),
    ...(typeof account.reservedPrice === "number"
      ? [`reserved-price: ${account.reservedPrice}  (its own)`]
      : []),
    `default-timeout: ${defaultTimeout(account) / 1000}s`,
    ...limitNames.map((name) => `${toLimitFlag(name)}: ${formatLimit(name)}${formatOwn(name)}`),
  ].join("\n");
}
