import { requireActiveAccount } from "../accounts/plans.ts";
import { assertStorageAvailable } from "../limits/storageQuota.ts";
import { applyRetryOverrides } from "../deadLetters/dlq.ts";
import type { Overrides } from "../deadLetters/overrides.ts";
import { findRedactedRefusal } from "../deadLetters/redactedParts.ts";
import type { Decision } from "../decision/command.ts";
import type { AccountId, Bytes, Millis } from "../values/basics.ts";
import type { MessageInput } from "../model/message.ts";
import type { Schedule } from "../model/schedule.ts";
import { noMessageSettings } from "../model/message.ts";
import { noSendSettings } from "../model/sendSettings.ts";
import type { Scope } from "../model/rights.ts";
import { findScopeRefusal, assertVerb } from "../model/rights.ts";
import { nextCronTime, parseCron } from "../values/cron.ts";
import { assertSchedule, requireSchedule } from "../sending/scheduleChecks.ts";
import { throwIfRefused } from "../values/errors.ts";

/** The settings of a schedule that can return to their defaults, with these defaults. */
const clearedValues = {
  method: noSendSettings.method,
  retries: noSendSettings.retries,
  retryDelay: noSendSettings.retryDelay,
  timeout: noSendSettings.timeout,
  flowControl: noSendSettings.flowControl,
  callback: noSendSettings.callback,
  failureCallback: noSendSettings.failureCallback,
  delay: noMessageSettings.delay,
  labels: noMessageSettings.labels,
  queue: noMessageSettings.queue,
  keepResponse: false,
  hideHeaders: false,
} as const satisfies Partial<MessageInput>;

/** The name of a field that can return to its default. */
export type ClearableField = keyof typeof clearedValues;

/** Reports whether a field of a message can return to its default. */
export const isClearable = (field: string): field is ClearableField => Object.hasOwn(clearedValues, field);

/**
 * The parts of a schedule that change. Absent parts stay. `cleared`: the fields that return to their
 * defaults. `withoutHeaders`: the canonical names of headers that are no longer delivered.
 */
export type ScheduleChange = {
  cron?: string;
  target?: Pick<MessageInput, "url" | "group" | "query">;
  queue?: string;
  body?: Bytes;
  cleared?: readonly ClearableField[];
  withoutHeaders?: readonly string[];
};

/** `scope` has the rights of a limited token. It is absent for other callers. */
type ChangeInput = {
  account: AccountId;
  id: string;
  change: ScheduleChange;
  overrides: Overrides;
  scope?: Scope;
};

/**
 * Changes parts of a schedule. Everything else stays, also its pause, its last firing and the time at which
 * it was created. With another expression, it fires at the next time of that expression. Throws `Refusal` if
 * the schedule does not exist, if redacted parts would be sent to another destination, or if the changed
 * schedule exceeds a limit.
 */
export const changeSchedule: Decision<ChangeInput, Schedule> = {
  decide: ({ account: owner, id, change, overrides, scope }, draft, moment) => {
    if (scope) assertVerb(scope, "read", " to send the messages of a schedule with changes");
    const account = requireActiveAccount(draft.get("accounts", owner));
    const schedule = requireSchedule(draft, owner, id);
    const changed = applyChange(schedule, { change, overrides }, moment.now);
    assertSchedule(account, { ...changed, body: change.body }, moment);
    const { headers, ...known } = schedule.messageInput;
    const kept = headers.filter(([name, value]) =>
      changed.messageInput.headers.some((one) => one[0] === name && one[1] === value),
    );
    throwIfRefused(
      findRedactedRefusal(
        { ...known, headers: kept, url: toTarget(known) },
        {
          overrides,
          ...(change.target === undefined ? {} : { url: toTarget(change.target) }),
          ...(change.body === undefined ? {} : { body: change.body }),
        },
      ) ??
        (scope && findScopeRefusal(scope, changed.messageInput)),
    );
    assertStorageAvailable(account, { continuesRun: false, isDiskLow: moment.isDiskLow });
    draft.put("schedules", changed);
    return changed;
  },
};

/** Returns the name of the URL group, or else the URL. */
const toTarget = ({ group, url }: Pick<MessageInput, "group" | "url">): string => group ?? url;

function applyChange(
  schedule: Schedule,
  { change, overrides }: Pick<ChangeInput, "change" | "overrides">,
  now: Millis,
): Schedule {
  const { cron: cronText, target, queue, body, cleared = [], withoutHeaders = [] } = change;
  const cron = cronText === undefined ? schedule.cron : parseCron(cronText);
  const isOnTime = schedule.paused || cron === schedule.cron;
  const { query, ...rest } = schedule.messageInput;
  const defaults: Partial<typeof clearedValues> = Object.fromEntries(
    cleared.map((field) => [field, clearedValues[field]]),
  );
  const base = {
    ...rest,
    ...(target ?? (query === undefined ? {} : { query })),
    ...defaults,
    headers: rest.headers.filter(([name]) => !withoutHeaders.includes(name)),
    ...(queue === undefined ? {} : { queue }),
  };
  const { body: newBody, ...messageInput } = applyRetryOverrides(
    { ...base, body: body ?? schedule.body },
    { ...overrides, ...keepTimes(base, overrides) },
  );
  return {
    ...schedule,
    cron,
    dueAt: isOnTime ? schedule.dueAt : nextCronTime(cron, Math.max(now, schedule.lastAt ?? 0)),
    messageInput,
    body: newBody,
  };
}

/** Returns the delay of the schedule as an override, because a retry would drop a delay that is not given. */
const keepTimes = ({ delay }: Pick<MessageInput, "delay">, overrides: Overrides): Pick<Overrides, "delay"> =>
  overrides.delay === undefined && delay !== null ? { delay } : {};
