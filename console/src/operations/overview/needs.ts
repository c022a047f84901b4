import type { Response } from "../../api/client.ts";
import { send } from "../../api/client.ts";
import type { StateName } from "../../parts/stateName.ts";
import { fillStatus, splitUrl } from "../../parts/words.ts";

type Condition = Response<"GET /v2/overview">["conditions"][number];
type RunGroup = Response<"GET /v2/workflows/dlq/groups">["groups"][number];
type DeadGroup = Response<"GET /v2/dlq/groups">["groups"][number];

/** Where a problem is shown: a page, and its filter. */
type Place = { to: string; search?: Record<string, string> };
/** The request that ends a problem, and the one that undoes it. */
type Remedy = { verb: string; resume: () => Promise<unknown>; undo: () => Promise<unknown>; done: string };

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
  remedy?: Remedy;
};

const glyphs: Readonly<Record<Condition["level"], StateName>> = {
  problem: "failed",
  warning: "held",
  note: "paused",
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
    ...(count !== undefined && { count, unit: units[kind] ?? "waiting" }),
    place: findPlace(condition),
    ...(remedy && { remedy }),
  };
};

const describeActor = ({ kind, token, user }: NonNullable<Condition["by"]>): string =>
  user ?? (token === undefined ? actors[kind] : token === "main" ? "the main token" : `token ${token}`);

const actors: Readonly<Record<NonNullable<Condition["by"]>["kind"], string>> = {
  token: "a token",
  password: "the password of the account",
  operator: "the operator",
  commandLine: "the command line",
  server: "the server",
};

const units: Partial<Record<Condition["kind"], string>> = {
  "host.failing": "in flight",
  "host.hanging": "in flight",
  "source.rejecting": "rejected",
  "changes.lost": "lost",
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
      return { to: "/keys" };
    case "limit":
      return { to: "/messages", search: { state: "held" } };
    case "schedule":
      return { to: "/schedules" };
    case "source":
      return { to: "/sources" };
    case "account":
    case "storage":
      return { to: "/settings" };
    case "node":
    case "disk":
      return { to: "/operator" };
    default:
      return null;
  }
}

function findRemedy({ kind, subject }: Condition): Remedy | null {
  if (subject === "") return null;
  if (kind === "queue.paused")
    return {
      verb: "Resume queue",
      resume: () => send("POST /v2/queues/{name}/resume", { params: { name: subject } }),
      undo: () => send("POST /v2/queues/{name}/pause", { params: { name: subject } }),
      done: `Queue ${subject} is resumed`,
    };
  if (kind === "key.paused")
    return {
      verb: "Resume key",
      resume: () => send("POST /v2/flowControl/{key}/resume", { params: { key: subject } }),
      undo: () => send("POST /v2/flowControl/{key}/pause", { params: { key: subject } }),
      done: `Key ${subject} is resumed`,
    };
  return null;
}

/** Returns dead letters with one cause as the overview shows them. */
export const toDeadNeed = ({ url, responseStatus, error, count, dlqId }: DeadGroup): Need => ({
  key: `dead ${dlqId}`,
  glyph: "failed",
  title: `${splitUrl(url).host} ${responseStatus === undefined ? "does not respond" : `responds with ${responseStatus}`}`,
  about: [splitUrl(url).path, fillStatus(error, responseStatus)].filter(Boolean).join(": "),
  count,
  unit: "failed",
  place: { to: "/dead-letters", search: { url } },
});

/** Returns failed runs with one cause as the overview shows them. */
export const toRunNeed = ({ workflowUrl, stepName, error, count, dlqId }: RunGroup): Need => ({
  key: `run ${dlqId}`,
  glyph: "failed",
  title: `Runs of ${splitUrl(workflowUrl).path || workflowUrl} failed${stepName === undefined ? "" : ` at “${stepName}”`}`,
  about: error,
  count,
  unit: count === 1 ? "run" : "runs",
  place: { to: "/failed-runs", search: { workflowUrl } },
});

/**
 * Returns the failures that no listed group has, because groups are made of the newest ones. `null` if there
 * are none.
 */
export function toRestNeed(total: number, groups: readonly { count: number }[]): Need | null {
  const rest = total - groups.reduce((sum, { count }) => sum + count, 0);
  if (rest <= 0) return null;
  return {
    key: "rest",
    glyph: "failed",
    title: "Older failures that are in no group",
    count: rest,
    unit: "failed",
    place: { to: "/dead-letters" },
  };
}
