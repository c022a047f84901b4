import type { Brand } from "../../engine/core/values/basics.ts";
import { memoize } from "../../engine/core/caches/memoize.ts";
import { ignoredSettings } from "./table.ts";

/**
 * A setting as the caller wrote it. `name` is in lower case, without the prefix of a brand; `writtenName` is
 * the name as the caller wrote it, for refusals. `hasPlus`: its value in a query string contained a `+`,
 * which means a space.
 */
export type RawSetting = {
  brand: Brand;
  name: string;
  value: string;
  writtenName: string;
  hasPlus?: boolean;
};

/**
 * The parts of a setting's name. `callbacks` is the path to the callback that the setting is for, from the
 * outermost callback inwards; it is empty for the message itself.
 */
export type SettingTarget = {
  callbacks: readonly ("callback" | "failureCallback")[];
  name: string;
  isForward: boolean;
  isIgnored: boolean;
};

/** Returns the parts of the name of a setting, in lower case and without the prefix of a brand. */
export const parseTarget = memoize((fullName): SettingTarget => {
  const callbacks: ("callback" | "failureCallback")[] = [];
  let name = fullName;
  for (;;) {
    const [prefix] = /^(failure-)?callback-/.exec(name) ?? [];
    if (prefix === undefined)
      return {
        callbacks,
        name,
        isForward: name.startsWith("forward-"),
        isIgnored: ignoredSettings.test(fullName),
      };
    callbacks.push(prefix === "callback-" ? "callback" : "failureCallback");
    name = name.slice(prefix.length);
  }
});

/** Reports whether a setting is the URL of a callback. */
export const isCallback = ({ name }: SettingTarget): boolean =>
  name === "callback" || name === "failure-callback";

/** Returns the start of the name of a setting as the caller wrote it, for a refusal. */
export const shortenSetting = ({ writtenName }: RawSetting): string => writtenName.slice(0, 200);
