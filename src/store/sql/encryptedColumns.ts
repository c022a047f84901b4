import type { Account, WebhookSource } from "../../core/model/message.ts";
import type { SecretCipher } from "./keyRing.ts";
import { parseKeyVersion } from "./keyRing.ts";

/** What is secret of an account, and is sealed. Its token is looked up by its hash. */
type AccountSecrets = Pick<Account, "password" | "token" | "signingKeys" | "lastRotation">;

/** As `tables.ts` has them. */
type Columns = Readonly<Record<string, unknown>>;
type Texts = Record<string, string>;

type Detail<Row> = Partial<Row> & { sealed?: string };

/** What accounts were read from. Sealing gives another text each time, and a row is changed only if it is still what was read. */
const columnsAsRead = new WeakMap<Account, Texts>();

const accountSubject = (id: string): string => `account ${id} secrets`;
const sourceSubject = (account: string, id: string): string => `account ${account} source ${id} verification`;

const toText = (value: unknown): string => (typeof value === "string" ? value : "");
const parseDetail = <Row>(row: Columns): Detail<Row> => JSON.parse(toText(row.detail)) as Detail<Row>;

/** An account as columns, its secrets sealed; in clear where there are no keys. */
export function writeAccount(account: Account, cipher: SecretCipher): Texts {
  const before = columnsAsRead.get(account);
  if (before) return before;
  const { id, tokenHash, password, token, signingKeys, lastRotation, ...detail } = account;
  const secrets: AccountSecrets = { password, token, signingKeys, ...(lastRotation && { lastRotation }) };
  const sealed = cipher.encrypt(secrets, accountSubject(id));
  return { id, token_hash: tokenHash, detail: JSON.stringify({ ...detail, ...(sealed === null ? secrets : { sealed }) }) };
}

/** The same back. Rows that were written without keys are in clear. */
export function readAccount(row: Columns, cipher: SecretCipher): Account {
  const { sealed, ...detail } = parseDetail<Account>(row);
  const id = toText(row.id);
  const secrets = sealed === undefined ? {} : (cipher.decrypt(sealed, accountSubject(id)) as AccountSecrets);
  const account = { ...detail, ...secrets, id, tokenHash: toText(row.token_hash) } as Account;
  columnsAsRead.set(account, { id, token_hash: account.tokenHash, detail: toText(row.detail) });
  return account;
}

/** A source as columns: what its calls are verified with is sealed. Of its URL only the hash is kept. */
export function writeSource({ account, id, secretHash, verification, ...detail }: WebhookSource, cipher: SecretCipher): Texts {
  const sealed = verification === null ? null : cipher.encrypt(verification, sourceSubject(account, id));
  return {
    account,
    id,
    secret_hash: secretHash,
    detail: JSON.stringify({ ...detail, ...(sealed === null ? { verification } : { sealed }) }),
  };
}

/** The same back. */
export function readSource(row: Columns, cipher: SecretCipher): WebhookSource {
  const { sealed, ...detail } = parseDetail<WebhookSource>(row);
  const account = toText(row.account);
  const id = toText(row.id);
  const verification = sealed === undefined ? (detail.verification ?? null) : cipher.decrypt(sealed, sourceSubject(account, id));
  return { ...detail, verification, account, id, secretHash: toText(row.secret_hash) } as WebhookSource;
}

/** The version of the key that the secrets of a row are sealed with. `clear`: with none. `nothing`: it has no secrets. */
export function readKeyVersion(row: Columns): number | "clear" | "nothing" {
  const { sealed, ...detail } = parseDetail<Account & WebhookSource>(row);
  if (sealed !== undefined) return parseKeyVersion(sealed);
  return detail.verification || detail.signingKeys ? "clear" : "nothing";
}
