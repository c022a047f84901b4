import type { Bytes } from "../../engine/core/values/basics.ts";
import type { MessageInput } from "../../engine/core/model/message.ts";
import { Refusal } from "../../engine/core/values/errors.ts";
import { limits } from "../../engine/core/values/limits.ts";
import { parseBrandedHeader } from "../../api/http/brand.ts";
import { assertUrl, isUrl, parseName } from "../../api/http/target.ts";
import type { GroupTarget } from "../../api/publishing/read.ts";
import {
  defaultBrand,
  listKeptSettings,
  listTokenBrands,
  makePublishRequest,
  pickFirstBrand,
} from "../../api/publishing/read.ts";
import { listHeaderSettings, listQuerySettings } from "../../api/settings/grammar.ts";
import { listContentHeaders } from "../../api/settings/message.ts";

/** A row of an outbox as the database returns it. Parts that are too large for any message are null. */
export type OutboxRow = {
  id: string;
  key: string;
  is_workflow: boolean;
  destination: string;
  body: Bytes | null;
  size: number;
  settings: Members | null;
  headers: Members | null;
};

type Members = Readonly<Record<string, unknown>>;

/** The maximum number of settings and headers of a row, and of values of each. */
const maxHeaders = 1_000;

/**
 * Returns the message that a row describes. `groupTarget` is its URL group, if its destination is not a URL.
 * Throws `Refusal`.
 */
export function readRow(row: OutboxRow, name: string, groupTarget: GroupTarget | null): MessageInput {
  const { destination, body, size, is_workflow: isWorkflow } = row;
  if (body === null)
    throw new Refusal("too-large", `body: ${size} bytes exceed the limit of the server; send a reference`);
  if (row.settings === null || row.headers === null)
    throw new Refusal("too-large", "settings: larger than the headers of a message may be");
  if (isUrl(destination) || isWorkflow) assertUrl("destination", destination);
  const purpose = isWorkflow ? "triggers" : "messages";
  const { settings, queue } = readSettings(row);
  const forwarded = readForwarded(row);
  const own = [
    listHeaderSettings([...settings, ...forwarded]),
    listQuerySettings(groupTarget?.settings ?? []),
  ];
  const groupLayer = listKeptSettings(groupTarget?.group.headers);
  const brand = pickFirstBrand(
    [
      [...own.flat().map((one) => one.brand), ...listTokenBrands(groupTarget?.tokenName ?? null)],
      groupLayer.map((one) => one.brand),
    ],
    defaultBrand(purpose),
  );
  const { input } = makePublishRequest(purpose, [...own, groupLayer], {
    brand,
    destination: groupTarget?.group.name ?? destination,
    query: groupTarget?.query ?? null,
    queue,
    // The driver returns a part of a larger piece of memory.
    body: new Uint8Array(body),
    content: listContentHeaders(forwarded),
    senderHeaders: () => [],
    callerIp: null,
  });
  // Dead letters and logs show the label, so that people find the outbox.
  const labels = [...new Set([...input.labels.slice(0, limits.labels - 1), `outbox:${name}`])];
  return { ...input, labels };
}

/**
 * Returns the settings of a row as headers, names and values in turn, and its queue. A row has no path that
 * could name the queue. Throws `Refusal`.
 */
function readSettings(row: OutboxRow): { settings: string[]; queue: string | null } {
  const { is_workflow: isWorkflow, key } = row;
  const listed = listPairs("settings", row.settings);
  const settings: string[] = [];
  let queue: string | null = null;
  let hasRunId = false;
  for (let at = 0; at < listed.length; at += 2) {
    const [written = "", value = ""] = listed.slice(at, at + 2);
    const setting = parseBrandedHeader(written)?.name;
    if (setting === undefined)
      throw new Refusal("invalid", `settings: ${showName(written)} is not a setting; put it in the headers`);
    if (setting.startsWith("workflow-") && !isWorkflow)
      throw new Refusal("invalid", `settings: ${showName(written)} is for runs; use the function trigger`);
    hasRunId ||= setting === "workflow-runid";
    if (setting === "queue-name" && !isWorkflow) queue = parseName("settings: queue", value);
    else settings.push(written, value);
  }
  if (isWorkflow && !hasRunId) settings.push("Svc-Workflow-RunId", `wfr_${key}`);
  return { settings, queue };
}

/** Returns the headers of a row as the settings that deliver them. Throws `Refusal`. */
function readForwarded({ headers }: OutboxRow): string[] {
  const listed = listPairs("headers", headers);
  return listed.map((text, at) => {
    if (at % 2 === 1) return text;
    if (parseBrandedHeader(text))
      throw new Refusal("invalid", `headers: ${showName(text)} is a setting; put it in the settings`);
    return /^content-/i.test(text) ? text : `Svc-Forward-${text}`;
  });
}

const showName = (name: string): string => JSON.stringify(name.slice(0, 100));

/** Returns the members of an object as names and values in turn. A list has a pair for each value. */
function listPairs(field: string, members: Members | null): string[] {
  const pairs: string[] = [];
  for (const [name, value] of Object.entries(members ?? {})) {
    for (const one of Array.isArray(value) ? (value as unknown[]) : [value]) {
      if (one === null) continue;
      if (typeof one !== "string" && typeof one !== "number" && typeof one !== "boolean")
        throw new Refusal("invalid", `${field}: ${showName(name)} is neither a string nor a list of strings`);
      pairs.push(name, String(one));
      if (pairs.length > 2 * maxHeaders) throw new Refusal("invalid", `${field}: more than ${maxHeaders}`);
    }
  }
  return pairs;
}
