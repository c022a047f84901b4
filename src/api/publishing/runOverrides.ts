import { Refusal, throwIfRefused } from "../../engine/core/values/errors.ts";
import type { Account } from "../../engine/core/model/account.ts";
import { noSendSettings } from "../../engine/core/model/sendSettings.ts";
import { findSendingRefusal } from "../../engine/core/limits/sendingLimits.ts";
import type { RunOverrides } from "../../engine/core/deadLetters/resume.ts";
import { listHeaderSettings, listQuerySettings, readAllSettings } from "../settings/grammar.ts";
import type { MessageSettings } from "../settings/grammar.ts";
import type { IncomingRequest } from "../route/route.ts";
import { assertMayReadToSend } from "../route/scope.ts";
import { readFieldOverrides, readFlowControlOverrides, readMessageOverrides } from "../settings/message.ts";
import type { MessageSettingName } from "../settings/table.ts";
import { assertNewRunId } from "../settings/workflow.ts";

/** The settings that can be changed when a run is resumed or restarted. */
export const resumeSettings: ReadonlySet<MessageSettingName> = new Set([
  "retries",
  "retry-delay",
  "delay",
  "label",
  "flow-control-key",
  "flow-control-value",
  "failure-callback",
]);

/**
 * Reads the settings that a request changes for a run that is resumed or restarted. `isForMany`: the request
 * is for several runs. Throws `Refusal` for a setting that cannot be changed.
 */
export function readRunOverrides(
  incoming: IncomingRequest,
  { isForMany, account }: { isForMany: boolean; account: Account },
): { overrides: RunOverrides; ignored: string[] } {
  const { rawHeaders, query } = incoming;
  const { settings, ignored } = readAllSettings(
    listHeaderSettings(rawHeaders),
    listQuerySettings(query.settings),
  );
  const unsupported = findUnsupported(settings);
  if (unsupported !== null)
    throw new Refusal(
      "invalid",
      `${unsupported.slice(0, 200)}: cannot be changed when a run is resumed or restarted; remove it`,
    );
  const { values, workflow } = settings;
  const runId = workflow?.values["workflow-runid"];
  if (isForMany && runId !== undefined)
    throw new Refusal(
      "invalid",
      `${workflow?.writtenNames["workflow-runid"] ?? "workflow-runid"}: ` +
        "only valid for a single run; resume the runs one by one",
    );
  if (runId !== undefined) assertNewRunId(runId, workflow?.writtenNames["workflow-runid"]);
  const overrides = {
    ...(runId === undefined ? {} : { runId }),
    ...readFieldOverrides(values),
    ...readMessageOverrides(values),
    ...readFlowControlOverrides(values),
    ...(values["failure-callback"] === undefined ? {} : { failureUrl: values["failure-callback"] }),
  };
  assertMayReadToSend(
    incoming,
    "the history of a run",
    overrides.failureUrl === undefined ? [] : [overrides.failureUrl],
  );
  throwIfRefused(findBrokenLimit(account, overrides));
  return { overrides, ignored };
}

/**
 * Returns the limit of the account that the overrides exceed, or null. It is checked before any run is
 * changed, because a request can be for several runs.
 */
function findBrokenLimit(account: Account, { retries, retryDelay, delay, flowControl }: RunOverrides) {
  return findSendingRefusal(
    account,
    {
      ...noSendSettings,
      notBefore: null,
      retries: retries ?? null,
      retryDelay: retryDelay ?? null,
      delay: delay ?? null,
      flowControl: { key: "", parallelism: null, rate: null, period: null, ...flowControl },
    },
    0,
  );
}

/**
 * Returns the first setting that cannot be changed, by the name that the caller wrote. Returns null if all
 * can be changed.
 */
function findUnsupported({
  values,
  writtenNames,
  workflow,
  headers,
  callback,
  failureCallback,
}: MessageSettings): string | null {
  const names = Object.keys(values) as MessageSettingName[];
  const name = names.find((one) => !resumeSettings.has(one));
  if (name !== undefined) return writtenNames[name] ?? name;
  const [, runSetting] =
    Object.entries(workflow?.writtenNames ?? {}).find(([one]) => one !== "workflow-runid") ?? [];
  const [header] = headers;
  return (
    runSetting ??
    callback?.firstWritten ??
    failureCallback?.firstWritten ??
    (header ? `forward-${header[0]}` : null)
  );
}
