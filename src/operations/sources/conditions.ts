import type { Condition } from "../../engine/core/explain/condition.ts";
import { conditionWindow, makeCondition } from "../../engine/core/explain/condition.ts";
import type { WebhookSource } from "../../engine/core/model/webhookSource.ts";
import type { AccountId, Millis } from "../../engine/core/values/basics.ts";
import { limits } from "../../engine/core/values/limits.ts";
import type { Store } from "../../engine/store/store.ts";

const maxRejections = 100;

/** Returns the sources of an account that are paused, or have rejected calls of late. */
export async function findSourceConditions(
  store: Pick<Store, "read">,
  account: AccountId,
  now: Millis,
): Promise<Condition[]> {
  const sources = await store.read.listResources("sources", { account, limit: limits.sources });
  const rejecting = await Promise.all(
    sources.filter(({ rejected }) => rejected > 0).map((source) => findRejections(store, source, now)),
  );
  return [...rejecting.flat(), ...sources.flatMap(listPause)];
}

const showName = ({ id, name }: WebhookSource): string => name || id;

const listPause = (source: WebhookSource): Condition[] =>
  source.paused
    ? [
        makeCondition({
          kind: "source.paused",
          level: "note",
          subject: source.id,
          text: `Source ${showName(source)} is paused and rejects all calls`,
        }),
      ]
    : [];

async function findRejections(
  store: Pick<Store, "read">,
  source: WebhookSource,
  now: Millis,
): Promise<Condition[]> {
  const { account, id } = source;
  const rejections = await store.read.listResources("rejections", {
    ...{ account, after: `${id}/`, before: `${id}/~`, limit: maxRejections },
    bodies: false,
  });
  const recent = rejections.filter(({ time }) => time > now - conditionWindow);
  const byTime = recent.toSorted((a, b) => b.time - a.time);
  const [newest, oldest] = [byTime[0], byTime.at(-1)];
  if (!newest || !oldest) return [];
  const count = recent.reduce((sum, { others }) => sum + 1 + others, 0);
  return [
    makeCondition({
      kind: "source.rejecting",
      level: "problem",
      subject: id,
      text:
        `Source ${showName(source)} rejected ${count} ${count === 1 ? "call" : "calls"} within an hour: ` +
        newest.reason,
      since: oldest.time,
      count,
    }),
  ];
}
