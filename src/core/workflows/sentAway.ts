import type { Draft } from "../decision/command.ts";
import { callbacksOf } from "../model/destinations.ts";
import { goingRun } from "./history.ts";
import type { AccountId, Letter, RunPost } from "../model/message.ts";
import type { Scope } from "../model/rights.ts";
import { sendingBrokenBy } from "../model/rights.ts";

type Broken = ReturnType<typeof sendingBrokenBy>;
type Sent = Pick<Letter, "url" | "group" | "callback" | "failureCallback" | "post">;

/**
 * Returns why a token may not publish a message that would send stored content to a URL that the caller chose; null if it may. The URL of the
 * message itself is free if it receives only what the caller gave.
 */
export function sentAwayBy(scope: Scope, draft: Draft, account: AccountId, letter: Sent): Broken {
  if (scope.verbs.includes("read")) return null;
  if (letter.post) return ofRun(scope, draft, account, letter, letter.post);
  if (letter.group === null) return null;
  // Callbacks tell the URLs of the endpoints, and the default headers of the group.
  const own = draft.get("groups", account, letter.group)?.headers.map(([, value]) => value) ?? [];
  return sendingBrokenBy(scope, { what: `a message to the URL group ${letter.group}`, to: callbacksOf(letter), own });
}

function ofRun(scope: Scope, draft: Draft, account: AccountId, letter: Sent, post: RunPost): Broken {
  if (post.kind === "start") return ofStart(scope, draft, account, letter, post);
  const going = goingRun(draft, account, post.runId);
  if (!going) return null;
  const what = post.kind === "call" ? answerFor(post.runId) : historyOf(post.runId);
  const to = post.kind === "call" ? callbacksOf({ callback: letter.callback, failureCallback: null }) : [letter.url];
  return sendingBrokenBy(scope, { what, to, own: [going.run.url] });
}

type Start = Extract<RunPost, { kind: "start" }>;

/** A run that is going is started again by its endpoint alone. A new one goes to where it starts, and nowhere else. */
function ofStart(scope: Scope, draft: Draft, account: AccountId, letter: Sent, { runId, url, origin, features, invoker }: Start): Broken {
  const invoking = invoker && goingRun(draft, account, invoker.runId);
  const broken = invoking && sendingBrokenBy(scope, { what: historyOf(invoker.runId), to: [invoker.url], own: [invoking.run.url] });
  if (broken) return broken;
  const going = goingRun(draft, account, runId);
  const what = historyOf(runId);
  if (!going) return sendingBrokenBy(scope, { what, to: [url, ...(features.initialBody ? [] : callbacksOf(letter))], own: [letter.url] });
  if (origin !== "again") return null;
  const { run } = going;
  return sendingBrokenBy(scope, { what, to: [letter.url, ...callbacksOf(letter)], own: [run.url, ...callbacksOf(run.settings)] });
}

const historyOf = (runId: string): string => `the history of the run ${runId.slice(0, 200)}`;
const answerFor = (runId: string): string => `an answer for the run ${runId.slice(0, 200)}`;

/** Why a token may not let a step of a run wait, and continue at these URLs; null when it may. */
export function waitSentAwayBy(scope: Scope, runId: string, { to, own }: { to: readonly string[]; own: string }): Broken {
  return sendingBrokenBy(scope, { what: historyOf(runId), to, own: [own] });
}
