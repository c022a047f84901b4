import { Refusal } from "../values/errors.ts";
import { joinHeaders } from "../values/headers.ts";
import { limits } from "../values/limits.ts";
import { mergeRedactions } from "../model/redaction.ts";
import { noSendSettings } from "../model/sendSettings.ts";
import type { CallbackSettings, FlowControl, Redaction, SendSettings } from "../model/sendSettings.ts";
import type { Millis } from "../values/basics.ts";

/**
 * Settings that replace those of a message. Absent settings stay as they were. Headers replace headers of the
 * same name.
 */
type SendOverrides = Partial<Omit<SendSettings, "flowControl" | "callback" | "failureCallback">> & {
  /** If only a key is given, the message keeps its limits. If only limits are given, it keeps its key. */
  flowControl?: Partial<FlowControl>;
  callback?: CallbackOverrides;
  failureCallback?: CallbackOverrides;
};

/**
 * Settings of a callback. If `url` is given, they describe a new callback, which keeps no setting of the old
 * one.
 */
type CallbackOverrides = SendOverrides & Partial<Pick<CallbackSettings, "url" | "delay" | "labels">>;

/** The settings that a retry may replace. */
export type Overrides = SendOverrides & {
  delay?: Millis;
  notBefore?: Millis;
  labels?: readonly string[];
  keepResponse?: boolean;
  hideHeaders?: boolean;
  ackTimeout?: Millis;
  /**
   * Fields to hide in addition to those that are already hidden. A caller who retries a message must not
   * learn what was hidden.
   */
  redaction?: Redaction;
};

/** Returns the URLs of new callbacks, including callbacks of callbacks. */
export function listOverrideUrls({ callback, failureCallback }: SendOverrides): string[] {
  const found: string[] = [];
  for (const one of [callback, failureCallback]) {
    if (one?.url !== undefined) found.push(one.url);
    if (one) found.push(...listOverrideUrls(one));
  }
  return found;
}

/** Returns the settings of a callback of which only the URL is given. */
export const defaultCallback = (url: string): CallbackSettings => ({ url, ...noSendSettings });

/**
 * Returns the settings with the overrides. Throws `Refusal` if they change a key or a callback that the
 * message does not have.
 */
export function applyOverrides<S extends SendSettings>(settings: S, changed: SendOverrides): S {
  const { headers = [], flowControl: changedControl, callback, failureCallback, ...others } = changed;
  const flowControl = replaceFlowControl(settings.flowControl, changedControl);
  return {
    ...settings,
    ...others,
    headers: joinHeaders(settings.headers, headers),
    flowControl,
    callback: mergeCallback(settings.callback, callback, "callback"),
    failureCallback: mergeCallback(settings.failureCallback, failureCallback, "failure-callback"),
  };
}

/**
 * Returns the overrides alone as full settings, as if the message had a key and callbacks without any
 * settings.
 */
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
 * Returns the key and its limits, each from `changed` or else from `old`. Like a publish, throws `Refusal` if
 * a key would have no limits, or if limits would have no key.
 */
export function replaceFlowControl(
  old: FlowControl | null,
  changed: Partial<FlowControl> | undefined,
): FlowControl | null {
  const flowControl = mergeFlowControl(old, changed);
  if (changed && !flowControl) throw new Refusal("invalid", "flow-control-value: requires Flow-Control-Key");
  if (changed && !old && changed.parallelism === undefined)
    throw new Refusal("invalid", "flow-control-key: requires Flow-Control-Value, for example parallelism=10");
  return flowControl;
}

/**
 * Returns a redaction that hides what `old` hides, and what is added. Many requests may each add headers, so
 * throws `Refusal` if the names of all hidden headers exceed `limits.headerBytes`.
 */
export function extendRedaction(old: Redaction | null, added: Redaction | undefined): Redaction | null {
  if (!added) return old;
  const merged = mergeRedactions(old, added);
  const names = merged?.headers === true ? [] : merged?.headers || [];
  const length = names.reduce((sum, name) => sum + name.length, 0);
  if (length <= limits.headerBytes) return merged;
  throw new Refusal(
    "limit-exceeded",
    `redact-fields: the names of all hidden headers have ${length} characters, ` +
      `the limit is ${limits.headerBytes}; use header to hide all headers`,
  );
}

/** Returns the key and its limits, each from `changed` or else from `old`. Null: neither has a key. */
function mergeFlowControl(
  old: FlowControl | null,
  changed: Partial<FlowControl> | undefined,
): FlowControl | null {
  if (!changed) return old;
  const known = old ?? { key: null, parallelism: null, rate: null, period: null };
  const key = changed.key ?? known.key;
  return key === null ? null : { ...known, ...changed, key };
}

function mergeCallback(
  old: CallbackSettings | null,
  changed: CallbackOverrides | undefined,
  name: string,
): CallbackSettings | null {
  if (!changed) return old;
  const { url, ...others } = changed;
  if (url !== undefined) return applyOverrides(defaultCallback(url), others);
  if (old) return applyOverrides(old, others);
  throw new Refusal("invalid", `${name}: requires its URL, because there is no ${name} to change`);
}
