import type { NodeRecord } from "../cluster/nodeState.ts";
import type { AuditEntry } from "../model/auditEntry.ts";
import type { Millis } from "../values/basics.ts";

/** The kinds of marks: something was paused, resumed or changed, or a server started. */
export const markKinds = ["pause", "resume", "change", "start"] as const;

/** An event that may explain why figures change from then on. */
export type ActivityMark = { at: Millis; kind: (typeof markKinds)[number]; text: string };

/** The things of the audit log whose changes affect what is published and sent. */
const things: Readonly<Record<string, string>> = {
  queue: "queue",
  flowControl: "key",
  schedule: "schedule",
  source: "source",
  group: "URL group",
};

const verbs: Readonly<Record<string, readonly [ActivityMark["kind"], string]>> = {
  pause: ["pause", "paused"],
  resume: ["resume", "resumed"],
  set: ["change", "changed"],
  change: ["change", "changed"],
  pin: ["change", "changed"],
  unpin: ["change", "changed"],
  create: ["change", "created"],
  delete: ["change", "deleted"],
};

/** Returns the marks of a time, in order: what was paused, resumed or changed, and starts of servers. */
export function listActivityMarks(
  entries: readonly AuditEntry[],
  nodes: readonly NodeRecord[],
  from: Millis,
): ActivityMark[] {
  const changes = entries.flatMap(({ what, object, time: at }): ActivityMark[] => {
    const [subject = "", verb = ""] = what.split(".");
    const thing = things[subject];
    const done = verbs[verb];
    if (thing === undefined || done === undefined || at < from) return [];
    return [{ at, kind: done[0], text: [thing, object, done[1]].filter(Boolean).join(" ") }];
  });
  const byStart = nodes.toSorted((a, b) => a.startedAt - b.startedAt);
  const starts = byStart.flatMap(({ startedAt: at, version }, index): ActivityMark[] => {
    if (at < from) return [];
    const before = byStart[index - 1]?.version;
    const isNew = before !== undefined && before !== version;
    return [{ at, kind: "start", text: isNew ? `version ${version} started` : "a server started" }];
  });
  return [...changes, ...starts].toSorted((a, b) => a.at - b.at);
}
