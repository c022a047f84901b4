import type { Response } from "../api/client.ts";
import { send } from "../api/client.ts";
import { useRead } from "../api/queries.ts";
import { useMay } from "../api/session.ts";

/** Something that is wrong, as the server reports it. */
export type Condition = Response<"GET /v2/overview">["conditions"][number];

/** The request that ends a problem, and the one that undoes it. */
export type Remedy = {
  verb: string;
  resume: () => Promise<unknown>;
  undo: () => Promise<unknown>;
  done: string;
};

/** The things whose lists show what is wrong with each. */
type Thing = "queue" | "key" | "schedule" | "source";

/** The conditions of the things of one kind, by their names or ids. `isPending`: they are not read yet. */
export type Reasons = { isPending: boolean; of(subject: string): Condition | undefined };

/** Returns what the server says about the queues, keys, schedules or sources. The most urgent comes first. */
export function useReasons(thing: Thing): Reasons {
  const may = useMay();
  const { data, isPending } = useRead("GET /v2/overview", {}, { enabled: may.read });
  const conditions = data?.conditions.filter(({ kind }) => kind.startsWith(`${thing}.`)) ?? [];
  return {
    isPending: isPending && may.read,
    of: (subject) => conditions.find((one) => one.subject === subject),
  };
}

/** Returns the words for who caused a condition. */
export const describeActor = ({ kind, token, tokenName, user }: NonNullable<Condition["by"]>): string =>
  user ??
  (token === undefined
    ? actors[kind]
    : token === "main"
      ? "the main token"
      : `token ${tokenName === undefined ? token : `“${tokenName}”`}`);

const actors: Readonly<Record<NonNullable<Condition["by"]>["kind"], string>> = {
  token: "a token",
  password: "the password of the account",
  operator: "the operator",
  commandLine: "the command line",
  server: "the server",
};

/** Returns the request that ends a condition, or null if no single request does. */
export function findRemedy({ kind, subject }: Pick<Condition, "kind" | "subject">): Remedy | null {
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
  if (kind === "schedule.paused")
    return {
      verb: "Resume",
      resume: () => send("POST /v2/schedules/{scheduleId}/resume", { params: { scheduleId: subject } }),
      undo: () => send("POST /v2/schedules/{scheduleId}/pause", { params: { scheduleId: subject } }),
      done: `Schedule ${subject} is resumed`,
    };
  if (kind === "source.paused") return { verb: "Resume", ...pauseSource(subject) };
  return null;
}

function pauseSource(sourceId: string): Omit<Remedy, "verb"> {
  const set = (paused: boolean) => () =>
    send("PATCH /v2/sources/{sourceId}", { params: { sourceId }, body: { paused } });
  return { resume: set(false), undo: set(true), done: "The source takes calls again" };
}

/**
 * Returns the text of a condition without the name of its thing, which the row shows already. For example,
 * “Queue mail is paused” becomes “Is paused”.
 */
export function shortenCondition(text: string, name: string): string {
  const title = ["Queue", "Key", "Schedule", "Source"]
    .map((thing) => `${thing} ${name}`)
    .find((one) => text.startsWith(one));
  const rest =
    title === undefined
      ? text.replace(` of schedule ${name} `, " ")
      : text.slice(title.length).replace(/^:? /, "");
  return rest.slice(0, 1).toUpperCase() + rest.slice(1);
}
