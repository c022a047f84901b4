import { findBodyRefusal } from "../limits/sendingLimits.ts";
import type { Moment } from "../decision/command.ts";
import type { Account } from "../model/account.ts";
import type { MessageInput, StoredMessage } from "../model/message.ts";
import type { Bytes, HeaderList } from "../values/basics.ts";
import { Refusal, throwIfRefused } from "../values/errors.ts";
import { joinHeaders } from "../values/headers.ts";
import type { PatchOperation } from "../values/jsonPatch.ts";
import { patchJson } from "../values/jsonPatch.ts";
import { findRedactedRefusal } from "./redactedParts.ts";

/**
 * What changes in each message of many that are sent again. `headers` replace headers of the same name.
 * `jsonPatch` changes the body, which must be JSON.
 */
export type GroupChange = {
  url?: string;
  headers?: HeaderList;
  jsonPatch?: readonly PatchOperation[];
};

/**
 * Returns the input that sends a message again with a change. It names the dead letter. Throws `Refusal` if
 * the change does not fit the message, or would show a redacted part: to another URL, or by what a patch
 * finds.
 */
export function applyGroupChange(
  input: MessageInput,
  { url, headers = [], jsonPatch }: GroupChange,
  { account, message, dlqId, moment }: Changed,
): MessageInput {
  throwIfRefused(findRedactedRefusal(message, { ...(url !== undefined && { url }), overrides: {} }));
  if (jsonPatch && message.redaction?.body)
    throw new Refusal("forbidden", "body: redacted, so not changed by a patch");
  const body = jsonPatch
    ? new TextEncoder().encode(patchJson(decodeBody(message.body), jsonPatch))
    : input.body;
  if (jsonPatch) throwIfRefused(findBodyRefusal(account, body, moment));
  return {
    ...input,
    // A message to another URL no longer belongs to a URL group.
    ...(url === undefined || url === input.url ? {} : { url, group: null, endpoint: null }),
    headers: joinHeaders(input.headers, headers),
    body,
    replayOf: { messageId: message.id, dlqId },
  };
}

/** Returns the text of a body. Throws `Refusal` if it is not UTF-8, because its other bytes would be lost. */
function decodeBody(body: Bytes): string {
  try {
    return new TextDecoder("utf-8", { fatal: true }).decode(body);
  } catch {
    throw new Refusal("invalid", "jsonPatch: the body is not UTF-8");
  }
}

type Changed = { account: Account; message: StoredMessage; dlqId: string; moment: Moment };
