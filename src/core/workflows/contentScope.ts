import type { Draft } from "../decision/command.ts";
import { listAllCallbackUrls } from "../model/publishRights.ts";
import { findOngoingRun } from "./history.ts";
import type { AccountId, MessageInput, RunPost } from "../model/message.ts";
import type { Scope } from "../model/rights.ts";
import { findDisclosureRefusal } from "../model/rights.ts";

type ContentRefusal = ReturnType<typeof findDisclosureRefusal>;
/** A message that is published with a limited token. */
type ScopedPublish = {
  scope: Scope;
  account: AccountId;
  input: Pick<MessageInput, "url" | "group" | "callback" | "failureCallback" | "post">;
};

/**
 * Returns why a token may not publish a message that would send stored content to a URL that the caller
 * chose. Returns null if the token may publish the message. If the URL of the message receives only content
 * from the caller, this function allows any URL.
 */
export function findContentRefusal(draft: Draft, publish: ScopedPublish): ContentRefusal {
  const { scope, account, input } = publish;
  if (scope.verbs.includes("read")) return null;
  if (input.post) return findRunContentRefusal(draft, publish, input.post);
  if (input.group === null) return null;
  // Callbacks report the URLs of the endpoints, and the default headers of the group.
  const allowedUrls = draft.get("urlGroups", account, input.group)?.headers.map(([, value]) => value) ?? [];
  return findDisclosureRefusal(scope, {
    content: `a message to the URL group ${input.group}`,
    urls: listAllCallbackUrls(input),
    allowedUrls,
  });
}

function findRunContentRefusal(draft: Draft, publish: ScopedPublish, post: RunPost): ContentRefusal {
  const { scope, account, input } = publish;
  if (post.kind === "start") return findStartContentRefusal(draft, publish, post);
  const ongoing = findOngoingRun(draft, account, post.runId);
  if (!ongoing) return null;
  const content = post.kind === "call" ? describeAnswer(post.runId) : describeHistory(post.runId);
  const urls =
    post.kind === "call"
      ? listAllCallbackUrls({ callback: input.callback, failureCallback: null })
      : [input.url];
  return findDisclosureRefusal(scope, { content, urls, allowedUrls: [ongoing.run.url] });
}

type StartPost = Extract<RunPost, { kind: "start" }>;

/**
 * Returns why a token may not start a run. It may start an active run again only with URLs that the run
 * already has. The history of a new run may be sent only to the URL of its first message.
 */
function findStartContentRefusal(
  draft: Draft,
  { scope, account, input }: ScopedPublish,
  { runId, url, origin, features, invoker }: StartPost,
): ContentRefusal {
  const invoking = invoker && findOngoingRun(draft, account, invoker.runId);
  const refusal =
    invoking &&
    findDisclosureRefusal(scope, {
      content: describeHistory(invoker.runId),
      urls: [invoker.url],
      allowedUrls: [invoking.run.url],
    });
  if (refusal) return refusal;
  const ongoing = findOngoingRun(draft, account, runId);
  const content = describeHistory(runId);
  if (!ongoing)
    return findDisclosureRefusal(scope, {
      content,
      urls: [url, ...(features.initialBody ? [] : listAllCallbackUrls(input))],
      allowedUrls: [input.url],
    });
  if (origin !== "again") return null;
  const { run } = ongoing;
  return findDisclosureRefusal(scope, {
    content,
    urls: [input.url, ...listAllCallbackUrls(input)],
    allowedUrls: [run.url, ...listAllCallbackUrls(run.settings)],
  });
}

const describeHistory = (runId: string): string => `the history of the run ${runId.slice(0, 200)}`;
const describeAnswer = (runId: string): string => `an answer for the run ${runId.slice(0, 200)}`;

/** Returns why a token may not let a step of a run wait and continue at these URLs; null if it may. */
export function findWaitContentRefusal(
  scope: Scope,
  runId: string,
  { urls, own }: { urls: readonly string[]; own: string },
): ContentRefusal {
  return findDisclosureRefusal(scope, { content: describeHistory(runId), urls, allowedUrls: [own] });
}
