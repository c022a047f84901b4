import type { Condition } from "../../engine/core/explain/condition.ts";
import {
  conditionWindow,
  formatMany,
  formatSpan,
  makeCondition,
} from "../../engine/core/explain/condition.ts";
import type { AccountId, Millis } from "../../engine/core/values/basics.ts";
import { minute } from "../../engine/core/values/time.ts";
import type { Store } from "../../engine/store/store.ts";
import type { OutboxState } from "./outbox.ts";

/** Returns the outboxes of an account that do not work, are late, or have rejected rows of late. */
export async function findOutboxConditions(
  { read }: Pick<Store, "read">,
  account: AccountId,
  now: Millis,
): Promise<Condition[]> {
  const states = await read.outboxes(account);
  return states.flatMap((state) =>
    [findFailure(state), findLag(state, now), findRejected(state, now)].flat(),
  );
}

const findFailure = ({ id, error, errorAt, waiting }: OutboxState): Condition[] =>
  error === null
    ? []
    : [
        makeCondition({
          ...{ kind: "outbox.failing", level: "problem", subject: id, since: errorAt, count: waiting },
          text: `Rows of outbox ${id} wait: ${error}`,
        }),
      ];

function findLag({ id, error, oldestAt, waiting }: OutboxState, now: Millis): Condition[] {
  if (error !== null || oldestAt === null || oldestAt > now - minute) return [];
  return [
    makeCondition({
      ...{ kind: "outbox.late", level: "warning", subject: id, since: oldestAt, count: waiting },
      text: `The oldest row of outbox ${id} has waited for ${formatSpan(now - oldestAt)}`,
    }),
  ];
}

function findRejected({ id, rejected, rejectedAt, reason }: OutboxState, now: Millis): Condition[] {
  if (rejected === 0 || rejectedAt === null || rejectedAt <= now - conditionWindow) return [];
  return [
    makeCondition({
      ...{ kind: "outbox.rejecting", level: "problem", subject: id, since: rejectedAt, count: rejected },
      text: `Outbox ${id} has ${formatMany(rejected, "rejected row", "rejected rows")}: ${reason ?? ""}`,
    }),
  ];
}
