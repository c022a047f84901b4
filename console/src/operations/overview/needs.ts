import type { Response } from "../../api/client.ts";
import type { Condition, Remedy } from "../../parts/conditions.ts";
import { describeActor, findRemedy } from "../../parts/conditions.ts";
import type { StateName } from "../../parts/stateName.ts";
import { findDifference, titleOf } from "../../parts/groupTitles.ts";
import { formatMany, splitUrl } from "../../parts/words.ts";

type RunGroup = Response<"GET /v2/workflows/dlq/groups">["groups"][number];
type DeadGroup = Response<"GET /v2/dlq/groups">["groups"][number];

/** Where a problem is shown: a page, and its filter. */
type Place = { to: string; search?: Record<string, string>; verb?: string };

/** A problem: what it is, how many messages or runs have it, and the button that helps. */
export type Need = {
  key: string;
  glyph: StateName;
  title: string;
  about?: string;
  since?: number;
  by?: string;
  count?: number;
  unit?: string;
  /** Null if no page of the console shows it. */
  place: Place | null;
  /** The place of the button, if it plans an action at once. Others look first. */
  plan?: Place & { verb: string };
  remedy?: Remedy;
};

const glyphs: Readonly<Record<Condition["level"], StateName>> = {
  problem: "failed",
  warning: "held",
  note: "pending",
};

/** Returns a condition of the server as the overview shows it. */
export const toConditionNeed = (condition: Condition): Need => {
  const { kind, level, subject, text, since, count, by } = condition;
  const remedy = findRemedy(condition);
  return {
    key: `${kind} ${subject}`,
    glyph: kind.endsWith(".paused") ? "paused" : glyphs[level],
    title: text,
    ...(since !== undefined && { since }),
    ...(by && { by: describeActor(by) }),
    ...(count !== undefined && { count, unit: nameUnit(condition) }),
    place: findPlace(condition),
    ...(remedy && { remedy }),
  };
};

/** Only a duplicate is dropped. Any other publish that became no message was refused. */
const nameUnit = ({ kind, subject }: Condition): string =>
  kind === "publishes.dropped" && subject !== "deduplicated" ? "refused" : (units[kind] ?? "waiting");

const units: Partial<Record<Condition["kind"], string>> = {
  "host.failing": "in flight",
  "host.hanging": "in flight",
  "source.rejecting": "rejected",
  "outbox.rejecting": "rejected",
  "token.refused": "refused",
  "publishes.dropped": "dropped",
  "changes.lost": "lost",
  "runs.slow": "running",
};

function findPlace({ kind, subject }: Condition): Place | null {
  const [thing = ""] = kind.split(".");
  // A condition without a subject is about several things.
  const isOne = subject !== "";
  switch (thing) {
    case "host":
      return { to: isOne ? `/hosts/${encodeURIComponent(subject)}` : "/hosts" };
    case "queue":
      return { to: isOne ? `/queues/${encodeURIComponent(subject)}` : "/queues" };
    case "key":
      return { to: "/keys", ...(isOne && { search: { search: subject, open: subject } }) };
    case "runs":
      return {
        to: "/runs",
        search: { state: "RUN_STARTED", ...(isOne && { workflowUrl: subject }) },
      };
    case "limit":
    case "puller":
      return { to: "/messages", search: { state: "held" } };
    case "schedule":
      return { to: "/schedules", ...(isOne && { search: { open: subject } }) };
    case "outbox":
      return { to: "/outboxes" };
    case "source":
      return { to: "/sources" };
    case "token":
    case "publishes":
      return { to: "/not-published" };
    case "account":
    case "storage":
      return { to: "/settings" };
    case "server":
      return kind === "server.refusing" ? { to: "/messages", verb: "Show messages" } : null;
    case "node":
    case "disk":
      return { to: "/operator" };
    default:
      return null;
  }
}

/** Returns dead letters with one cause as the overview shows them. */
export const toDeadNeed = (
  { responseStatus, count, ...group }: DeadGroup,
  all: readonly DeadGroup[],
): Need => ({
  key: `dead ${group.cause}`,
  glyph: "failed",
  title: [`“${titleOf({ ...group, responseStatus })}”`, findDifference({ ...group, responseStatus }, all)]
    .filter(Boolean)
    .join(" at "),
  about:
    (responseStatus === undefined ? "" : `${responseStatus} from `) + group.url.replace(/^https?:\/\//, ""),
  count,
  unit: group.countIsMinimum ? "or more failed" : "failed",
  place: { to: "/dead-letters", search: { cause: group.cause } },
  plan: { to: "/dead-letters", search: { cause: group.cause, act: "retry" }, verb: "Retry" },
});

/** Returns failed runs with one cause as the overview shows them. */
export const toRunNeed = ({ workflowUrl, stepName, error, count, ...group }: RunGroup): Need => ({
  key: `run ${group.cause}`,
  glyph: "failed",
  title: `Runs of ${splitUrl(workflowUrl).path || workflowUrl} failed${stepName === undefined ? "" : ` at “${stepName}”`}`,
  about: error,
  count,
  unit: group.countIsMinimum ? "or more runs" : count === 1 ? "run" : "runs",
  place: { to: "/failed-runs", search: { cause: group.cause } },
  plan: { to: "/failed-runs", search: { cause: group.cause, act: "resume" }, verb: "Resume" },
});

/** Returns the failures that no listed group has. `causes`: in how many groups they are. `null` if none. */
export function toRestNeed(total: number, groups: readonly { count: number }[], causes: number): Need | null {
  const rest = total - groups.reduce((sum, { count }) => sum + count, 0);
  if (rest <= 0) return null;
  return {
    key: "rest",
    glyph: "failed",
    title: causes > 0 ? formatMany(causes, "more cause", "more causes") : "Failures that are in no group",
    count: rest,
    unit: "failed",
    place: { to: "/dead-letters" },
  };
}
