import { Refusal } from "../../engine/core/values/errors.ts";
import { limits } from "../../engine/core/values/limits.ts";
import type { RawSetting } from "./rawSetting.ts";
import { isCallback, parseTarget, shortenSetting } from "./rawSetting.ts";
import type { MessageSettingName } from "./table.ts";
import type { WorkflowSettingName } from "./workflow.ts";

/**
 * Returns each setting once, from the first layer that has it. Forwarded headers may occur repeatedly. The
 * forwarded headers of a callback often contain a credential for the callback URL that the same layer sets.
 * They are dropped if an earlier layer replaces that URL.
 */
export function mergeLayers(layers: readonly (readonly RawSetting[])[]): readonly RawSetting[] {
  const [first = [], ...others] = layers.filter((layer) => layer.length > 0);
  const all = mergeLayer(first);
  const taken = new Map<string, string>();
  let previous = all;
  for (const layer of others) {
    for (const { name, value } of previous) taken.set(name, value).set(overriddenNames[name] ?? name, value);
    const merged = mergeLayer(layer);
    const replaced = merged.filter(
      ({ name, value }) => isCallback(parseTarget(name)) && taken.has(name) && taken.get(name) !== value,
    );
    const isForOther = (settingName: string): boolean =>
      replaced.some(({ name }) => settingName.startsWith(`${name}-forward-`));
    previous = merged.filter(({ name }) => !taken.has(name) && !isForOther(name));
    all.push(...previous);
  }
  return all;
}

/**
 * Settings that override another setting of a later layer: a delay in the request, for example, overrides a
 * `not-before` among the defaults.
 */
const overriddenNames: Readonly<Partial<Record<string, string>>> = {
  delay: "not-before",
  "content-based-deduplication": "deduplication-id",
};

function mergeLayer(all: readonly RawSetting[]): RawSetting[] {
  const positions = new Map<string, number>();
  const kept: RawSetting[] = [];
  for (const setting of all) {
    if (setting.name.length > longestName)
      throw new Refusal(
        "invalid",
        `${shortenSetting(setting)}: the name is longer than ${longestName} characters`,
      );
    const { isForward, isIgnored } = parseTarget(setting.name);
    const position = isForward || isIgnored ? undefined : positions.get(setting.name);
    const other = position === undefined ? undefined : kept[position];
    if (position !== undefined && other) kept[position] = mergeValues(other, setting);
    else positions.set(setting.name, kept.push(setting) - 1);
  }
  return kept;
}

/** Merges two settings with the same name. Throws `Refusal` if their values differ and are not lists. */
function mergeValues(one: RawSetting, other: RawSetting): RawSetting {
  if (one.value === other.value) return one;
  if (listSettings.has(one.name)) return { ...one, value: `${one.value},${other.value}` };
  const both =
    one.writtenName === other.writtenName
      ? "given twice with different values"
      : `also given as ${one.writtenName} with a different value`;
  throw new Refusal("invalid", `${shortenSetting(other)}: ${both}; remove one`);
}

/**
 * Settings whose values are comma-separated lists. If such a setting is given several times, its values are
 * joined, like repeated list headers (RFC 9110, 5.3).
 */
const listSettings: ReadonlySet<string> = new Set<MessageSettingName | WorkflowSettingName>([
  "label",
  "redact-fields",
  "feature-set",
]);

/**
 * Longest name of a setting, in characters. It has room for the prefixes and the longest name of a header.
 */
const longestName = 2 * limits.nameLength;
