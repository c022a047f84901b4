import type { ClearableField, ScheduleChange } from "../../engine/core/commands/changeSchedule.ts";
import { isClearable } from "../../engine/core/commands/changeSchedule.ts";
import type { Overrides } from "../../engine/core/deadLetters/overrides.ts";
import { canonicalName } from "../../engine/core/values/headers.ts";
import { Refusal } from "../../engine/core/values/errors.ts";
import { parseBrandedHeader } from "../http/brand.ts";
import type { RawSetting } from "./rawSetting.ts";
import type { MessageSettings } from "./grammar.ts";
import { readSettings } from "./grammar.ts";
import { readOverrides } from "./message.ts";
import type { MessageSettingName } from "./table.ts";
import { settingRows } from "./table.ts";

type SettingChanges = Pick<ScheduleChange, "cron" | "queue" | "cleared" | "withoutHeaders">;

/** Settings of a schedule only, which a retry cannot change. */
const ownNames: ReadonlySet<MessageSettingName> = new Set(["cron", "queue-name"]);

/** The settings that make a field together with others, or that a retry cannot change, with that field. */
const fields: Partial<Record<MessageSettingName, ClearableField>> = {
  "queue-name": "queue",
  "flow-control-key": "flowControl",
  "flow-control-value": "flowControl",
  callback: "callback",
  "failure-callback": "failureCallback",
  "keep-response": "keepResponse",
  "hide-headers": "hideHeaders",
};

/**
 * Reads the settings that a request gives a schedule, and the names of those that it removes. Throws
 * `Refusal` for a setting that is malformed, or that cannot be changed or removed.
 */
export function readScheduleSettings(
  added: readonly RawSetting[],
  removed: readonly string[],
): { changes: SettingChanges; overrides: Overrides; ignored: string[] } {
  const { settings, ignored } = readSettings(added);
  const { cron, "queue-name": queue, ...values } = settings.values;
  assertChangeable(settings);
  const { cleared, withoutHeaders } = readRemoved(removed);
  return {
    changes: {
      ...(cron === undefined ? {} : { cron }),
      ...(queue === undefined ? {} : { queue }),
      ...(cleared.length === 0 ? {} : { cleared }),
      ...(withoutHeaders.length === 0 ? {} : { withoutHeaders }),
    },
    overrides: readOverrides({ ...settings, values }),
    ignored,
  };
}

function assertChangeable({ values, writtenNames }: MessageSettings): void {
  for (const name of Object.keys(values) as MessageSettingName[])
    if (!ownNames.has(name) && settingRows[name].forRetries !== true)
      throw new Refusal(
        "invalid",
        `settings.${(writtenNames[name] ?? name).slice(0, 200)}: cannot be changed; ` +
          "create the schedule again",
      );
}

/** Returns what the removed settings are fields of, and the headers among them. */
function readRemoved(names: readonly string[]): { cleared: ClearableField[]; withoutHeaders: string[] } {
  const cleared = new Set<ClearableField>();
  const withoutHeaders: string[] = [];
  for (const writtenName of names) {
    const name = parseBrandedHeader(writtenName)?.name ?? "";
    if (name.startsWith("forward-")) withoutHeaders.push(canonicalName(name.slice("forward-".length)));
    else cleared.add(findField(name) ?? refuseRemoval(writtenName));
  }
  return { cleared: [...cleared], withoutHeaders };
}

function findField(name: string): ClearableField | null {
  if (!Object.hasOwn(settingRows, name)) return null;
  const field = fields[name as MessageSettingName] ?? settingRows[name as MessageSettingName].field ?? "";
  return isClearable(field) ? field : null;
}

function refuseRemoval(writtenName: string): never {
  const hint = /-(failure-)?callback-/i.test(writtenName)
    ? "give the URL of the callback with all its settings"
    : "create the schedule again";
  throw new Refusal("invalid", `settings.${writtenName.slice(0, 200)}: cannot be removed; ${hint}`);
}
