import { Refusal } from "../../core/values/errors.ts";
import type { Account } from "../../core/model/message.ts";
import { sendingLimitBrokenBy } from "../../core/commands/publish.ts";
import type { RunOverrides } from "../../core/commands/resume.ts";
import { givenByHeaders, givenByQuery, readAllSettings } from "../settings/grammar.ts";
import type { Settings } from "../settings/grammar.ts";
import type { Incoming } from "../route/route.ts";
import { mustReadToSend } from "../route/scope.ts";
import type { SettingName } from "../settings/table.ts";
import { checkNewRunId } from "../settings/workflow.ts";

/** What may be set anew when a run is resumed or restarted. */
export const settingsOfResume: ReadonlySet<SettingName> = new Set([
  ...(["retries", "retry-delay", "delay", "label", "flow-control-key", "flow-control-value", "failure-callback"] as const),
]);

/** Reads what a run is to have anew from the settings of a request. `many`: for several runs. Throws `Refusal` for what stays as it was. */
export function runOverridesOf(
  incoming: Incoming,
  { many, account }: { many: boolean; account: Account },
): { overrides: RunOverrides; ignored: string[] } {
  const { rawHeaders, query } = incoming;
  const { settings, ignored } = readAllSettings(givenByHeaders(rawHeaders), givenByQuery(query.settings));
  const stranger = strangerIn(settings);
  if (stranger !== null) throw new Refusal("invalid", `${stranger.slice(0, 200)}: cannot be changed when a run is resumed or restarted`);
  const { values, workflow } = settings;
  const runId = workflow?.values["workflow-runid"];
  if (many && runId !== undefined)
    throw new Refusal(
      "invalid",
      `${workflow?.written["workflow-runid"] ?? "workflow-runid"}: one id cannot be that of several runs; resume them one by one`,
    );
  if (runId !== undefined) checkNewRunId(runId, workflow?.written["workflow-runid"]);
  const key = values["flow-control-key"];
  const flowControl = { ...(key === undefined ? {} : { key }), ...values["flow-control-value"] };
  const overrides = {
    ...(runId === undefined ? {} : { runId }),
    ...(values.retries === undefined ? {} : { retries: values.retries }),
    ...(values["retry-delay"] === undefined ? {} : { retryDelay: values["retry-delay"] }),
    ...(values.delay === undefined ? {} : { delay: values.delay }),
    ...(values.label === undefined ? {} : { labels: values.label }),
    ...(values["failure-callback"] === undefined ? {} : { failureUrl: values["failure-callback"] }),
    ...(Object.keys(flowControl).length === 0 ? {} : { flowControl }),
  };
  mustReadToSend(incoming, "the history of a run", overrides.failureUrl === undefined ? [] : [overrides.failureUrl]);
  const broken = limitBrokenBy(account, overrides);
  if (broken) throw new Refusal(broken.refused, broken.message);
  return { overrides, ignored };
}

/** What no run may have is refused before any of them is touched. */
function limitBrokenBy(account: Account, { retries, retryDelay, delay, flowControl }: RunOverrides) {
  return sendingLimitBrokenBy(
    account,
    {
      ...{ method: "POST", headers: [], timeout: null, callback: null, failureCallback: null, notBefore: null },
      ...{ retries: retries ?? null, retryDelay: retryDelay ?? null, delay: delay ?? null },
      flowControl: { key: "", parallelism: null, rate: null, period: null, ...flowControl },
    },
    0,
  );
}

/** How the first setting that does not belong here was written. */
function strangerIn({ values, written, workflow, headers, callback, failureCallback }: Settings): string | null {
  const names = Object.keys(values) as SettingName[];
  const name = names.find((one) => !settingsOfResume.has(one));
  if (name !== undefined) return written[name] ?? name;
  const [, ofRun] = Object.entries(workflow?.written ?? {}).find(([one]) => one !== "workflow-runid") ?? [];
  const [header] = headers;
  return ofRun ?? callback?.firstWritten ?? failureCallback?.firstWritten ?? (header ? `forward-${header[0]}` : null);
}
