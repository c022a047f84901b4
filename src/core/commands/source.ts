import type { Decision, Key } from "../decision/command.ts";
import type { AccountId, Bytes, HeaderList, Millis, Rejection, WebhookSource } from "../model/message.ts";
import { quotaNeeds, takeQuota } from "../sending/quotas.ts";
import { requireActiveAccount } from "../accounts/plans.ts";
import { minute } from "../values/time.ts";

/** What people say of a source. */
export type SourceSettings = Pick<WebhookSource, "name" | "destination" | "headers" | "verification" | "deduplicate" | "paused">;

/** Makes a source. Whoever makes it knows the secret of which it keeps the hash. Throws `Refusal` when it would be one too many. */
export const createSource: Decision<SourceSettings & Pick<WebhookSource, "account" | "secretHash">, WebhookSource> = {
  needs: ({ account }) => ({ accounts: [[account]] }),
  further: ({ account }, draft) => quotaNeeds(draft, account, { name: "sources" }),
  decide: (settings, draft, moment) => {
    takeQuota(draft, requireActiveAccount(draft.get("accounts", settings.account)), { name: "sources" });
    const counters = { rejected: 0, kept: 0, keptUntil: 0, acceptedAt: null };
    const source: WebhookSource = { ...settings, id: moment.newId("src"), createdAt: moment.now, ...counters };
    draft.put("sources", source);
    return source;
  },
};

type Named = { account: AccountId; id: string };

/** Changes what is given of a source; with a new `secretHash`, the old secret ends. Null: there is no such source. */
export const changeSource: Decision<Named & { change: Partial<SourceSettings & Pick<WebhookSource, "secretHash">> }, WebhookSource | null> =
  {
    needs: ({ account, id }) => ({ sources: [[account, id]] }),
    decide: ({ account, id, change }, draft) => {
      const source = draft.get("sources", account, id);
      if (!source) return null;
      const changed = { ...source, ...change };
      draft.put("sources", changed);
      return changed;
    },
  };

/** Removes a source with the calls it rejected. What it published stays. */
export const deleteSource: Decision<Named, { deleted: boolean }> = {
  needs: ({ account, id }) => ({ sources: [[account, id]] }),
  decide: ({ account, id }, draft) => {
    const source = draft.get("sources", account, id);
    if (!source) return { deleted: false };
    draft.drop("sources", account, id);
    for (let number = 0; number < Math.min(source.kept, maxRejections); number++) draft.drop("rejections", ...rejectionKey(source, number));
    return { deleted: true };
  },
};

/** Of each source so many rejected calls are kept: the last ones. */
export const maxRejections = 100;

/** At most this many rejected calls of a source are kept at once, and then one in each interval. */
const burst = 20;
const interval: Millis = 1_000;

/**
 * Whether one more rejected call may be kept now. Each that is kept is a write to the disk, and whoever has the URL of a
 * source can make as many bad calls as he likes. (The leaky bucket as a meter: `keptUntil` moves on by the interval with
 * each, and may be ahead of now by the burst. Farther ahead it can only be because a clock went back.)
 */
export function mayKeepRejection({ keptUntil }: Pick<WebhookSource, "keptUntil">, now: Millis): boolean {
  const usedAhead = keptUntil - now;
  return usedAhead <= (burst - 1) * interval || usedAhead > 2 * burst * interval;
}

/** A call that was rejected. `body` is cut, `size` is what it was. `others`: those before it that were not even told of. */
export type RejectedCall = Named & { others: number; reason: string; method: string; size: number; body: Bytes } & {
  headers: HeaderList;
  callerIp: string | null;
};

/** Keeps a rejected call, in the place of the oldest one when all are taken. False when it came too soon after others, or the source is gone. */
export const keepRejection: Decision<RejectedCall, { kept: boolean }> = {
  needs: ({ account, id }) => ({ sources: [[account, id]] }),
  further: ({ account, id }, draft) => {
    const source = draft.get("sources", account, id);
    // Others of the same batch take places as well, but never more than a burst at one moment.
    return source ? { rejections: Array.from({ length: burst }, (_, ahead) => rejectionKey(source, source.kept + ahead)) } : {};
  },
  decide: ({ account, id, others, ...call }, draft, { now }) => {
    const source = draft.get("sources", account, id);
    if (!source || !mayKeepRejection(source, now)) return { kept: false };
    const { kept: number } = source;
    draft.put("rejections", { ...call, ...rejectionAt(source, number), time: now, number, others });
    const from = source.keptUntil - now > 2 * burst * interval ? now : Math.max(source.keptUntil, now);
    draft.put("sources", { ...source, kept: number + 1, keptUntil: from + interval, rejected: source.rejected + 1 + others });
    return { kept: true };
  },
};

const rejectionAt = ({ account, id }: Named, number: number): Pick<Rejection, "account" | "id"> => ({
  account,
  id: `${id}/${String(number % maxRejections).padStart(2, "0")}`,
});

const rejectionKey = (source: Named, number: number): Key => [source.account, rejectionAt(source, number).id];

/** Where the rejections of a source are, in the order of ids. Both ends are exclusive. */
export const rejectionRange = (sourceId: string): { after: string; before: string } => ({ after: `${sourceId}/`, before: `${sourceId}0` });

/** It is known to the minute when a source last accepted a call, so that this costs a busy one next to nothing. */
const acceptanceInterval: Millis = minute;

/** Whether it is time to note that a source accepted a call. */
export const shouldNoteAcceptance = ({ acceptedAt }: Pick<WebhookSource, "acceptedAt">, now: Millis): boolean =>
  acceptedAt === null || Math.abs(now - acceptedAt) >= acceptanceInterval;

/** Notes that a source accepted a call now. */
export const noteAcceptance: Decision<Named, { noted: boolean }> = {
  needs: ({ account, id }) => ({ sources: [[account, id]] }),
  decide: ({ account, id }, draft, { now }) => {
    const source = draft.get("sources", account, id);
    if (!source || !shouldNoteAcceptance(source, now)) return { noted: false };
    draft.put("sources", { ...source, acceptedAt: now });
    return { noted: true };
  },
};
