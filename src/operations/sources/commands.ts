import type { Decision, Key } from "../../engine/core/decision/command.ts";
import type { AccountId, Bytes, HeaderList, Millis } from "../../engine/core/values/basics.ts";
import type { Rejection, WebhookSource } from "../../engine/core/model/webhookSource.ts";
import { listSourceCountKeys } from "../../engine/core/accounts/usage.ts";
import { takeQuota } from "../../engine/core/limits/rowLimits.ts";
import { findStorageRefusal } from "../../engine/core/limits/storageQuota.ts";
import { requireActiveAccount } from "../../engine/core/accounts/plans.ts";
import { minute } from "../../engine/core/values/time.ts";
import type { WholeCall } from "./keptCall.ts";
import { dropKept, keepWhole } from "./keptCall.ts";

/** The settings of a source. */
export type SourceSettings = Pick<
  WebhookSource,
  "name" | "destination" | "headers" | "verification" | "deduplicate" | "paused" | "keepsRejected"
>;

/**
 * Creates a source. It keeps only the hash of its secret. Throws `Refusal` if the account would have too many
 * sources.
 */
export const createSource: Decision<
  SourceSettings & Pick<WebhookSource, "account" | "secretHash">,
  WebhookSource
> = {
  decide: (settings, draft, moment) => {
    takeQuota(draft, requireActiveAccount(draft.get("accounts", settings.account)), { name: "sources" });
    const source: WebhookSource = {
      ...settings,
      id: moment.newId("src"),
      createdAt: moment.now,
      rejected: 0,
      kept: 0,
      keptUntil: 0,
      acceptedAt: null,
    };
    draft.put("sources", source);
    return source;
  },
};

type Named = { account: AccountId; id: string };

/**
 * Changes the given settings of a source. A new `secretHash` invalidates the old secret. Null: the source
 * does not exist.
 */
export const changeSource: Decision<
  Named & { change: Partial<SourceSettings & Pick<WebhookSource, "secretHash">> },
  WebhookSource | null
> = {
  decide: ({ account, id, change }, draft) => {
    const source = draft.get("sources", account, id);
    if (!source) return null;
    const changed = { ...source, ...change };
    if (change.keepsRejected === false) {
      dropKept(draft, source);
      delete changed.keptCalls;
    }
    draft.put("sources", changed);
    return changed;
  },
};

/** Removes a source and its rejections. Messages that it published are not affected. */
export const deleteSource: Decision<Named, { deleted: boolean }> = {
  decide: ({ account, id }, draft) => {
    const source = draft.get("sources", account, id);
    if (!source) return { deleted: false };
    draft.drop("sources", account, id);
    for (let number = 0; number < Math.min(source.kept, maxRejections); number++)
      draft.drop("rejections", ...rejectionKey(source, number));
    dropKept(draft, source);
    for (const key of listSourceCountKeys(account, [id]))
      if (draft.get("usage", ...key)) draft.drop("usage", ...key);
    return { deleted: true };
  },
};

/** The number of rejections that are kept for each source. Older rejections are replaced. */
export const maxRejections = 100;

/** The number of rejections of a source that are kept at once. After that, one is kept per interval. */
const burst = 20;
const interval: Millis = 1_000;

/**
 * Reports whether one more rejection may be kept now. Each one is a write to the disk, and anyone who has the
 * URL of a source can make any number of bad calls.
 *
 * This is a leaky bucket as a meter: each rejection moves `keptUntil` forward by the interval, to at most a
 * burst ahead of now. If `keptUntil` is more than two bursts ahead, the clock has gone back, and the
 * rejection is kept.
 */
export function mayKeepRejection({ keptUntil }: Pick<WebhookSource, "keptUntil">, now: Millis): boolean {
  const usedAhead = keptUntil - now;
  return usedAhead <= (burst - 1) * interval || usedAhead > 2 * burst * interval;
}

/**
 * A rejected call. `body` is cut, and `size` is its full size. `others` is the number of earlier rejections
 * that were not recorded.
 */
export type RejectedCall = Named & {
  others: number;
  reason: string;
  method: string;
  size: number;
  body: Bytes;
} & {
  headers: HeaderList;
  callerIp: string | null;
  /** The call as it arrived, if its source keeps such calls. */
  whole?: WholeCall;
};

/**
 * Records a rejected call, in the place of the oldest one if all places are taken. Returns false if it came
 * too soon after others, or the source does not exist.
 */
export const keepRejection: Decision<RejectedCall, { kept: boolean }> = {
  decide: ({ account, id, others, whole, ...call }, draft, { now, isDiskLow }) => {
    const source = draft.get("sources", account, id);
    if (!source || !mayKeepRejection(source, now)) return { kept: false };
    const { kept: number } = source;
    // Only a row that was read is replaced.
    draft.get("rejections", ...rejectionKey(source, number));
    draft.put("rejections", { ...call, ...rejectionAt(source, number), time: now, number, others });
    const owner = whole && draft.get("accounts", account);
    const hasRoom = owner && findStorageRefusal(owner, { continuesRun: false, isDiskLow }) === null;
    const keptCalls = hasRoom ? keepWhole(draft, source, { number, whole, now }) : source.keptCalls;
    const from = source.keptUntil - now > 2 * burst * interval ? now : Math.max(source.keptUntil, now);
    draft.put("sources", {
      ...source,
      ...(keptCalls && { keptCalls }),
      kept: number + 1,
      keptUntil: from + interval,
      rejected: source.rejected + 1 + others,
      rejectedAt: now,
    });
    return { kept: true };
  },
};

const rejectionAt = ({ account, id }: Named, number: number): Pick<Rejection, "account" | "id"> => ({
  account,
  id: `${id}/${String(number % maxRejections).padStart(2, "0")}`,
});

const rejectionKey = (source: Named, number: number): Key => [source.account, rejectionAt(source, number).id];

/** Returns the range of the ids of a source's rejections. Both ends are exclusive. */
export const rejectionRange = (sourceId: string): { after: string; before: string } => ({
  after: `${sourceId}/`,
  before: `${sourceId}0`,
});

/**
 * The last accepted call of a source is recorded at most once a minute, so that a busy source causes few
 * writes.
 */
const acceptanceInterval: Millis = minute;

/** Reports whether it is time to record that a source accepted a call. */
export const shouldNoteAcceptance = (
  { acceptedAt }: Pick<WebhookSource, "acceptedAt">,
  now: Millis,
): boolean => acceptedAt === null || Math.abs(now - acceptedAt) >= acceptanceInterval;

/** Records that a source accepted a call now. */
export const noteAcceptance: Decision<Named, { noted: boolean }> = {
  decide: ({ account, id }, draft, { now }) => {
    const source = draft.get("sources", account, id);
    if (!source || !shouldNoteAcceptance(source, now)) return { noted: false };
    draft.put("sources", { ...source, acceptedAt: now });
    return { noted: true };
  },
};
