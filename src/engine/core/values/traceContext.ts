/**
 * The place of a request in a trace, as in the Trace Context of the W3C. `parent` is a traceparent of version
 * 00, and `state` a tracestate.
 */
export type TraceContext = { parent: string; state?: string };

const parentPattern = /^([0-9a-f]{2})-([0-9a-f]{32})-([0-9a-f]{16})-([0-9a-f]{2})(-.*)?$/;
const emptyId = /^0+$/;

/** The maximum length of a tracestate in characters, and of its members. A longer one is left out. */
const maxState = { length: 512, members: 32 };
const memberPattern = /^[a-z0-9][a-z0-9_*/@-]{0,255}=[\x21-\x2b\x2d-\x3c\x3e-\x7e]{1,256}$/;

/**
 * Returns the context that the values of these headers describe, or undefined if there is none or it is not
 * valid. A later version than 00 is read like version 00, as the standard says. A tracestate that is not
 * valid is left out.
 */
export function parseTraceContext(
  parents: readonly string[],
  states: readonly string[],
): TraceContext | undefined {
  const [parent] = parents;
  if (parent === undefined || parents.length > 1) return undefined;
  const [, version = "", traceId = "", spanId = "", flags = "", rest] =
    parentPattern.exec(parent.trim()) ?? [];
  if (version === "" || version === "ff" || (version === "00" && rest !== undefined)) return undefined;
  if (emptyId.test(traceId) || emptyId.test(spanId)) return undefined;
  const state = parseState(states);
  return { parent: `00-${traceId}-${spanId}-${flags}`, ...(state !== "" && { state }) };
}

function parseState(states: readonly string[]): string {
  const joined = states.join(",");
  if (joined.length > maxState.length) return "";
  const members = joined
    .split(",")
    .map((member) => member.trim())
    .filter((member) => member !== "");
  return members.length <= maxState.members && members.every((member) => memberPattern.test(member))
    ? members.join(",")
    : "";
}

/** Returns the traceparent of a child with this span id. */
export const toChildParent = ({ parent }: TraceContext, spanId: string): string =>
  `${parent.slice(0, 36)}${spanId}${parent.slice(52)}`;
