import type { OperationTerms } from "../../core/model/accountTerms.ts";
import type { Account } from "../../core/model/account.ts";
import type { ServerSetting } from "../../core/model/serverSetting.ts";
import { operations } from "../../../operations/stored.ts";
import type { WebhookSource } from "../../core/model/webhookSource.ts";
import type { SecretCipher } from "../layout/keyRing.ts";
import { parseKeyVersion } from "../layout/keyRing.ts";

/** The secrets of an account, which are encrypted. A token is looked up by its hash. */
type AccountSecrets = Pick<Account, "password" | "token" | "signingKeys" | "lastRotation" | "pulled"> &
  OperationTerms;

/** The columns of a row, as in `tables.ts`. */
type Columns = Readonly<Record<string, unknown>>;
type Texts = Record<string, string>;

type Detail<Row> = Partial<Row> & { sealed?: string };

/**
 * The columns from which accounts were read. A row is changed only if it still equals the columns that were
 * read, and a second encryption would give other columns.
 */
const columnsAsRead = new WeakMap<Account, Texts>();

const accountSubject = (id: string): string => `account ${id} secrets`;
const sourceSubject = (account: string, id: string): string => `account ${account} source ${id} verification`;

const toText = (value: unknown): string => (typeof value === "string" ? value : "");
const parseDetail = <Row>(row: Columns): Detail<Row> => JSON.parse(toText(row.detail)) as Detail<Row>;

/** Separates the fields of operations that are secrets from all others. */
function splitTerms<Others extends OperationTerms>(
  others: Others,
): { secretTerms: OperationTerms; detail: object } {
  const isSecret = ([name]: [string, unknown]): boolean => operations.secretTerms.some((one) => one === name);
  const entries = Object.entries(others);
  return {
    secretTerms: Object.fromEntries(entries.filter((entry) => isSecret(entry) && entry[1] !== undefined)),
    detail: Object.fromEntries(entries.filter((entry) => !isSecret(entry))),
  };
}

/** Returns the columns of an account with its secrets encrypted, or unencrypted if there are no keys. */
export function writeAccount(account: Account, cipher: SecretCipher): Texts {
  const before = columnsAsRead.get(account);
  if (before) return before;
  const { id, tokenHash, password, token, signingKeys, lastRotation, pulled, ...others } = account;
  const { secretTerms, detail } = splitTerms(others);
  const secrets: AccountSecrets = {
    ...{ password, token, signingKeys },
    ...(lastRotation && { lastRotation }),
    ...(pulled && { pulled }),
    ...secretTerms,
  };
  const sealed = cipher.encrypt(secrets, accountSubject(id));
  return {
    id,
    token_hash: tokenHash,
    detail: JSON.stringify({ ...detail, ...(sealed === null ? secrets : { sealed }) }),
  };
}

/** Returns the account in a row. Rows that were written without keys are unencrypted. */
export function readAccount(row: Columns, cipher: SecretCipher): Account {
  const { sealed, ...detail } = parseDetail<Account>(row);
  const id = toText(row.id);
  const secrets = sealed === undefined ? {} : (cipher.decrypt(sealed, accountSubject(id)) as AccountSecrets);
  const account = { ...detail, ...secrets, id, tokenHash: toText(row.token_hash) } as Account;
  columnsAsRead.set(account, { id, token_hash: account.tokenHash, detail: toText(row.detail) });
  return account;
}

/**
 * Returns the columns of a source. The secret that verifies its calls is encrypted, and only a hash of its
 * URL's secret is stored.
 */
export function writeSource(
  { account, id, secretHash, verification, ...detail }: WebhookSource,
  cipher: SecretCipher,
): Texts {
  const sealed = verification === null ? null : cipher.encrypt(verification, sourceSubject(account, id));
  return {
    account,
    id,
    secret_hash: secretHash,
    detail: JSON.stringify({ ...detail, ...(sealed === null ? { verification } : { sealed }) }),
  };
}

/** Returns the source in a row. Rows that were written without keys are unencrypted. */
export function readSource(row: Columns, cipher: SecretCipher): WebhookSource {
  const { sealed, ...detail } = parseDetail<WebhookSource>(row);
  const account = toText(row.account);
  const id = toText(row.id);
  const verification =
    sealed === undefined ? (detail.verification ?? null) : cipher.decrypt(sealed, sourceSubject(account, id));
  return { ...detail, verification, account, id, secretHash: toText(row.secret_hash) } as WebhookSource;
}

const settingSubject = (id: string): string => `server setting ${id}`;

/** Returns the columns of a setting of the server, which is encrypted. */
export function writeServerSetting(row: ServerSetting, cipher: SecretCipher): Texts {
  const { id } = row;
  const sealed = cipher.encrypt(row[id], settingSubject(id));
  return { id, detail: JSON.stringify(sealed === null ? { [id]: row[id] } : { sealed }) };
}

/** Returns the setting in a row. Rows that were written without keys are unencrypted. */
export function readServerSetting(row: Columns, cipher: SecretCipher): ServerSetting {
  const { sealed, ...detail } = parseDetail<ServerSetting>(row);
  const id = toText(row.id);
  return (
    sealed === undefined ? { id, ...detail } : { id, [id]: cipher.decrypt(sealed, settingSubject(id)) }
  ) as ServerSetting;
}

/**
 * Returns the version of the key that encrypted the secrets of a row. `clear`: the secrets are unencrypted.
 * `nothing`: the row has no secrets.
 */
export function readKeyVersion(row: Columns): number | "clear" | "nothing" {
  const { sealed, ...detail } = parseDetail<Account & WebhookSource & ServerSetting>(row);
  if (sealed !== undefined) return parseKeyVersion(sealed);
  const isSecret =
    detail.verification || detail.signingKeys || operations.secretTerms.some((name) => detail[name]);
  return isSecret ? "clear" : "nothing";
}
