import type { UrlGroup } from "../../engine/core/model/urlGroup.ts";
import { toJson } from "../fields/field.ts";
import { groupFields } from "../fields/urlGroup.ts";
import { redactSettings } from "../publishing/keptSettings.ts";
import { toSchema } from "./fieldSchema.ts";

/** A URL group, as the API shows it. */
export const groupSchema = toSchema(groupFields);

/** Returns a URL group as the API shows it, with redacted settings. */
export const groupJson = (group: UrlGroup): Record<string, unknown> =>
  toJson(groupFields, { ...group, shownHeaders: redactSettings(group.headers) });
