import { Refusal } from "../values/errors.ts";
import { joinHeaders } from "../values/headers.ts";
import type { CallbackSettings, FlowControl, Millis, Redaction, SendSettings } from "../model/message.ts";

/** What is sent anew; what is absent stays as it was. Headers replace those of the same name. */
type SendOverrides = Partial<Omit<SendSettings, "flowControl" | "callback" | "failureCallback">> & {
  /** A key without limits keeps those that there were, and limits without a key the key. */
  flowControl?: Partial<FlowControl>;
  callback?: CallbackOverrides;
  failureCallback?: CallbackOverrides;
};

/** With a URL it is a new callback, of which nothing stays as it was. */
type CallbackOverrides = SendOverrides & Partial<Pick<CallbackSettings, "url" | "delay" | "labels">>;

/** What a retry may set anew. */
export type Overrides = SendOverrides & {
  delay?: Millis;
  notBefore?: Millis;
  labels?: readonly string[];
  keepResponse?: boolean;
  /** Hidden as well: whoever may send something again may not learn what was hidden. */
  redaction?: Redaction;
};

/** Returns the URLs of new callbacks, and of theirs. */
export function listOverrideUrls({ callback, failureCallback }: SendOverrides): string[] {
  const found: string[] = [];
  for (const one of [callback, failureCallback]) if (one) found.push(...[one.url ?? []].flat(), ...listOverrideUrls(one));
  return found;
}

/** Returns the settings of a callback of which only the URL is given. */
export const defaultCallback = (url: string): CallbackSettings => ({
  url,
  method: "POST",
  headers: [],
  retries: null,
  retryDelay: null,
  timeout: null,
  flowControl: null,
  callback: null,
  failureCallback: null,
});

/** The settings with those that are given anew. Throws `Refusal` for settings of a key or a callback that there is none of. */
export function applyOverrides<S extends SendSettings>(settings: S, changed: SendOverrides): S {
  const { headers = [], flowControl: changedControl, callback, failureCallback, ...others } = changed;
  const flowControl = mustMergeFlowControl(settings.flowControl, changedControl);
  return {
    ...settings,
    ...others,
    headers: joinHeaders(settings.headers, headers),
    flowControl,
    callback: mergeCallback(settings.callback, callback, "callback"),
    failureCallback: mergeCallback(settings.failureCallback, failureCallback, "failure-callback"),
  };
}

/** What is given anew, alone: as if there had been a key and callbacks, and nothing said of them. */
export function expandOverrides(changed: SendOverrides): SendSettings {
  const { callback, failureCallback } = changed;
  const nothing = defaultCallback("");
  return applyOverrides(
    {
      ...nothing,
      flowControl: { key: "", parallelism: null, rate: null, period: null },
      callback: callback ? { ...nothing, ...expandOverrides(callback) } : null,
      failureCallback: failureCallback ? { ...nothing, ...expandOverrides(failureCallback) } : null,
    },
    changed,
  );
}

/**
 * Returns the key and its limits, each from `changed` or else from `old`. Throws `Refusal` if a key would have no limits, or limits no key,
 * as a publish does.
 */
export function mustMergeFlowControl(old: FlowControl | null, changed: Partial<FlowControl> | undefined): FlowControl | null {
  const flowControl = mergeFlowControl(old, changed);
  if (changed && !flowControl)
    throw new Refusal("invalid", "flow-control-value: there is no key that it could apply to; give Flow-Control-Key as well");
  if (changed && !old && changed.parallelism === undefined)
    throw new Refusal("invalid", "flow-control-key: there are no limits that it could come with; give Flow-Control-Value as well");
  return flowControl;
}

/** Null: there is no key, neither before nor now. */
export function mergeFlowControl(old: FlowControl | null, changed: Partial<FlowControl> | undefined): FlowControl | null {
  if (!changed) return old;
  const known = old ?? { key: null, parallelism: null, rate: null, period: null };
  const key = changed.key ?? known.key;
  return key === null ? null : { ...known, ...changed, key };
}

function mergeCallback(old: CallbackSettings | null, changed: CallbackOverrides | undefined, name: string): CallbackSettings | null {
  if (!changed) return old;
  const { url, ...others } = changed;
  if (url !== undefined) return applyOverrides(defaultCallback(url), others);
  if (old) return applyOverrides(old, others);
  throw new Refusal("invalid", `${name}: there is none that its settings could apply to; give its URL as well`);
}
