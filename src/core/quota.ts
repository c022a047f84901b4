import type { Decision } from "./command.ts";
import { Refusal } from "./errors.ts";
import type { Account, AccountId } from "./message.ts";
import { howToRaise, isLimited, limitOf } from "./plans.ts";
import type { Terms } from "./terms.ts";

// The bytes that an account has in storage are counted in its buckets of usage, in the transaction that stores or removes a row. A duty adds
// the buckets up (engine/storage.ts) and notes in the account whether it is over its quota, which each publish sees without a row more.

/** A publish is refused from the quota on; a step of a run that has begun is refused from this multiple of the quota on. */
const stepFactor = 1.25;

/** How much of its quota an account uses: 0 is within the quota, 1 over it, 2 so far over it that steps are refused. */
type Level = 0 | 1 | 2;

/** Reports whether an account has a quota. */
export const hasQuota = (account: Terms): boolean => account.deletedAt === undefined && isLimited(account, "storageBytes");

function levelOf(account: Terms, bytes: number): Level {
  if (!hasQuota(account)) return 0;
  const quota = limitOf(account, "storageBytes");
  return bytes >= quota * stepFactor ? 2 : bytes >= quota ? 1 : 0;
}

/** Reports whether the storage of an account must be looked at: it has a quota, or one was taken away. */
export const isMeasured = (account: Terms): boolean => hasQuota(account) || account.storage !== undefined;

/** Reports whether noting this number of bytes changes what is refused. */
export const isStorageNews = (account: Terms, bytes: number): boolean =>
  !hasQuota(account) || account.storage === undefined || levelOf(account, bytes) !== levelOf(account, account.storage.bytes);

/**
 * Notes how many bytes an account has in storage, if that changes what is refused. `uncounted`: bytes of rows from before they were
 * counted, as they were found when the account got its quota; they are added to the count once.
 */
export const noteStorage: Decision<{ account: AccountId; bytes: number; uncounted?: number }, { noted: boolean }> = {
  needs: ({ account }) => ({ accounts: [[account]] }),
  decide: ({ account: id, bytes, uncounted }, draft) => {
    const account = draft.get("accounts", id);
    if (!account || !isMeasured(account) || !isStorageNews(account, bytes)) return { noted: false };
    const { storage, ...others } = account;
    if (!hasQuota(account)) {
      draft.put("accounts", others);
      return { noted: true };
    }
    if (storage === undefined && uncounted === undefined) return { noted: false };
    if (storage === undefined && uncounted !== undefined && uncounted !== 0) draft.count(id, { storedBytes: uncounted });
    draft.put("accounts", { ...others, storage: { bytes } });
    return { noted: true };
  },
};

/** Why an account may store nothing more, if it is over its quota. `isStep`: of a step of a run that has begun, which may go beyond it. */
export function quotaBrokenBy(
  account: Account,
  { isStep = false }: { isStep?: boolean } = {},
): { refused: "storage-quota-exceeded"; message: string } | null {
  if (!account.storage || levelOf(account, account.storage.bytes) < (isStep ? 2 : 1)) return null;
  const used = `${account.storage.bytes} bytes were in storage when they were last added up, the limit is ${limitOf(account, "storageBytes")}`;
  const advice = "delete dead letters or schedules, or wait until history is past its time";
  return { refused: "storage-quota-exceeded", message: `storage: ${used}; ${advice}${howToRaise(account, "storageBytes")}` };
}

/** Throws `Refusal` if an account is over its quota. */
export function mustHaveRoom(account: Account, how?: { isStep?: boolean }): void {
  const broken = quotaBrokenBy(account, how);
  if (broken) throw new Refusal(broken.refused, broken.message);
}
