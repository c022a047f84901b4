import { KeyRound } from "lucide-react";
import type { Response } from "../../api/client.ts";
import { send } from "../../api/client.ts";
import { Icon } from "../../parts/basics.tsx";
import { Field, FormDialog } from "../../parts/dialog.tsx";
import { Secrets } from "../../parts/secret.tsx";
import { Visible } from "../../parts/visible.tsx";
import {
  formatBytes,
  formatCount,
  formatSpan,
  noCountFrom,
  noLimitFrom,
  readField,
} from "../../parts/words.ts";

type Account = Response<"GET /v2/admin/accounts">["accounts"][number];
/** A new account with its credentials. */
export type CreatedAccount = Response<"POST /v2/admin/accounts">;
type LimitName = keyof Account["limits"];

const plans = ["selfHosted", "free", "paid", "fixed_1m", "fixed_10m", "fixed_100m"] as const;

/** The limits by their names for people. The server has the bounds. */
const limits: Readonly<Record<LimitName, string>> = {
  messageBytes: "Bytes per message",
  retries: "Retries",
  delay: "Longest delay",
  timeout: "Longest timeout",
  parallelism: "Parallelism per queue and per endpoint",
  globalParallelism: "Deliveries in flight",
  requestsPerSecond: "Requests per second",
  requestsPerDay: "Daily requests before a warning",
  requestsPerDayHard: "Daily requests before an error",
  queues: "Queues",
  schedules: "Schedules",
  groups: "URL groups",
  endpoints: "Endpoints per URL group",
  sources: "Sources",
  tokens: "Tokens",
  deadLetters: "Dead letters",
  logEntries: "Log entries",
  auditEntries: "Entries of the audit log",
  deadLetterRetention: "Dead letters are kept for",
  logRetention: "Logs are kept for",
  auditRetention: "The audit log is kept for",
  storageBytes: "Stored bytes",
};

const limitNames = Object.keys(limits) as LimitName[];
const isDuration = (name: LimitName): boolean =>
  name === "delay" || name === "timeout" || name.endsWith("Retention");

const units = [
  [86_400_000, "d"],
  [3_600_000, "h"],
  [60_000, "m"],
  [1_000, "s"],
] as const;

/** Returns a limit as the API takes it. A duration is in the largest unit that has no rest. */
function writeLimit(name: LimitName, value: number): string {
  if (!isDuration(name)) return String(value);
  const [millis, unit] = units.find(([one]) => value % one === 0) ?? [1_000, "s"];
  return `${value / millis}${unit}`;
}

/** Returns a limit for people. */
function describeLimit(name: LimitName, value: number): string {
  if (isDuration(name)) return formatSpan(value);
  if (value >= (name === "storageBytes" ? noLimitFrom : noCountFrom)) return "no limit";
  return name.endsWith("Bytes") ? formatBytes(value) : formatCount(value);
}

type FormProps = { account?: Account; close(): void; done?(made: CreatedAccount): void };

/** Creates an account, or changes its plan and its limits. */
export function AccountForm({ account, close, done }: FormProps) {
  const save = async (given: FormData): Promise<void> => {
    const body = readAccount(given, account);
    if (account) await send("PATCH /v2/admin/accounts/{account}", { params: { account: account.id }, body });
    else done?.(await send("POST /v2/admin/accounts", { body: { name: readField(given, "name"), ...body } }));
  };
  const plan = account?.plan ?? "selfHosted";
  return (
    <FormDialog
      title={account ? `Account ${account.name}` : "New account"}
      verb={account ? "Save" : "Create account"}
      close={close}
      act={save}
    >
      {!account && (
        <Field name="Name">
          <input className="input" name="name" maxLength={100} required autoFocus />
        </Field>
      )}
      <Field name="Plan" hint="It sets the limits that are not set below.">
        <select className="input" name="plan" defaultValue={plan}>
          {plans.map((one) => (
            <option key={one}>{one}</option>
          ))}
        </select>
      </Field>
      <label className="choice">
        <input
          className="check"
          type="checkbox"
          name="standardWebhooks"
          defaultChecked={account?.standardWebhooks ?? false}
        />
        Sign deliveries also as Standard Webhooks
      </label>
      <details>
        <summary>Limits</summary>
        <div className="limits">
          {limitNames.map((name) => (
            <LimitField key={name} name={name} account={account} />
          ))}
        </div>
      </details>
    </FormDialog>
  );
}

function LimitField({ name, account }: { name: LimitName; account: Account | undefined }) {
  const isOwn = account?.ownLimits.includes(name) ?? false;
  const present = account?.limits[name];
  return (
    <Field name={limits[name]} hint={isOwn ? "Empty: the limit of the plan." : undefined}>
      <input
        className="input mono"
        name={`limit ${name}`}
        placeholder={
          present === undefined ? (isDuration(name) ? "7d" : "1000") : describeLimit(name, present)
        }
        defaultValue={isOwn && present !== undefined ? writeLimit(name, present) : ""}
      />
    </Field>
  );
}

/** Returns the fields that differ from the account. An empty limit is that of the plan. */
function readAccount(given: FormData, account: Account | undefined) {
  const own = new Set(account?.ownLimits);
  const changed: Record<string, string | null> = {};
  for (const name of limitNames) {
    const value = readField(given, `limit ${name}`).trim();
    const isOwn = own.has(name);
    if (value === "") {
      if (isOwn) changed[name] = null;
    } else if (!account || !isOwn || value !== writeLimit(name, account.limits[name])) changed[name] = value;
  }
  const plan = readField(given, "plan");
  return {
    ...(plan !== account?.plan && { plan }),
    standardWebhooks: given.has("standardWebhooks"),
    ...(Object.keys(changed).length > 0 && { limits: changed }),
  };
}

/** The credentials of a new account, which the server shows only once. */
export function Credentials({ of }: { of: CreatedAccount }) {
  const rows = [
    ["Password", of.password],
    ["Token", of.token],
    ["Read-only token", of.readOnlyToken],
    ["Current signing key", of.signingKeys.current],
    ["Next signing key", of.signingKeys.next],
  ] as const;
  return (
    <section className="callout good" role="status">
      <Icon of={KeyRound} />
      <div>
        <h2>
          Account <Visible text={of.name} /> is created
        </h2>
        <p>Copy these now. They are not shown again here.</p>
        <Secrets rows={rows} />
      </div>
    </section>
  );
}
