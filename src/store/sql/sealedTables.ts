import type { Account, Source } from "../../core/model/message.ts";
import type { Seals } from "./keyRing.ts";
import { versionOf } from "./keyRing.ts";

/** What is secret of an account, and is sealed. Its token is looked up by its hash. */
type Secrets = Pick<Account, "password" | "token" | "signingKeys" | "lastRotation">;

/** As `tables.ts` has them. */
type Columns = Readonly<Record<string, unknown>>;
type Texts = Record<string, string>;

type Detail<Row> = Partial<Row> & { sealed?: string };

/** What accounts were read from. Sealing gives another text each time, and a row is changed only if it is still what was read. */
const asRead = new WeakMap<Account, Texts>();

const ofAccount = (id: string): string => `account ${id} secrets`;
const ofSource = (account: string, id: string): string => `account ${account} source ${id} verification`;

const textOf = (value: unknown): string => (typeof value === "string" ? value : "");
const detailOf = <Row>(row: Columns): Detail<Row> => JSON.parse(textOf(row.detail)) as Detail<Row>;

/** An account as columns, its secrets sealed; in clear where there are no keys. */
export function writeAccount(account: Account, seals: Seals): Texts {
  const before = asRead.get(account);
  if (before) return before;
  const { id, tokenHash, password, token, signingKeys, lastRotation, ...detail } = account;
  const secrets: Secrets = { password, token, signingKeys, ...(lastRotation && { lastRotation }) };
  const sealed = seals.seal(secrets, ofAccount(id));
  return { id, token_hash: tokenHash, detail: JSON.stringify({ ...detail, ...(sealed === null ? secrets : { sealed }) }) };
}

/** The same back. Rows that were written without keys are in clear. */
export function readAccount(row: Columns, seals: Seals): Account {
  const { sealed, ...detail } = detailOf<Account>(row);
  const id = textOf(row.id);
  const secrets = sealed === undefined ? {} : (seals.open(sealed, ofAccount(id)) as Secrets);
  const account = { ...detail, ...secrets, id, tokenHash: textOf(row.token_hash) } as Account;
  asRead.set(account, { id, token_hash: account.tokenHash, detail: textOf(row.detail) });
  return account;
}

/** A source as columns: what its calls are verified with is sealed. Of its URL only the hash is kept. */
export function writeSource({ account, id, secretHash, verification, ...detail }: Source, seals: Seals): Texts {
  const sealed = verification === null ? null : seals.seal(verification, ofSource(account, id));
  return {
    account,
    id,
    secret_hash: secretHash,
    detail: JSON.stringify({ ...detail, ...(sealed === null ? { verification } : { sealed }) }),
  };
}

/** The same back. */
export function readSource(row: Columns, seals: Seals): Source {
  const { sealed, ...detail } = detailOf<Source>(row);
  const [account, id] = [textOf(row.account), textOf(row.id)];
  const verification = sealed === undefined ? (detail.verification ?? null) : seals.open(sealed, ofSource(account, id));
  return { ...detail, verification, account, id, secretHash: textOf(row.secret_hash) } as Source;
}

/** The version of the key that the secrets of a row are sealed with. `clear`: with none. `nothing`: it has no secrets. */
export function sealOf(row: Columns): number | "clear" | "nothing" {
  const { sealed, ...detail } = detailOf<Account & Source>(row);
  if (sealed !== undefined) return versionOf(sealed);
  return detail.verification || detail.signingKeys ? "clear" : "nothing";
}
