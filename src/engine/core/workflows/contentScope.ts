import type { Draft } from "../decision/command.ts";
import { listAllCallbackUrls } from "../model/publishRights.ts";
import type { CallbackSettings } from "../model/sendSettings.ts";
import type { MessageInput } from "../model/message.ts";
import type { Run } from "../model/run.ts";
import type { RunPost } from "../model/runPost.ts";
import type { AccountId } from "../values/basics.ts";
import { findOngoingRun, pickOwnFailureCallback } from "./history.ts";
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
  const allowedUrls =
    draft.inspect("urlGroups", account, input.group)?.headers.map(([, value]) => value) ?? [];
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
  const { run } = ongoing;
  const { callback } = input;
  return post.kind === "call"
    ? (findDisclosureRefusal(scope, {
        content: describeAnswer(post.runId),
        urls: callback ? [callback.url, ...listAllCallbackUrls({ ...callback, failureCallback: null })] : [],
        allowedUrls: [run.url],
      }) ?? findFailureRefusal(scope, run, callback))
    : (findDisclosureRefusal(scope, {
        content: describeHistory(post.runId),
        urls: [input.url],
        allowedUrls: [run.url],
      }) ?? findFailureRefusal(scope, run, input));
}

/**
 * Returns why a post may not choose the failure callback of its run; null if it may. It may give those that
 * the run already has. A failure callback that does not count receives nothing, so it may have any URL.
 */
function findFailureRefusal(
  scope: Scope,
  run: Run,
  post: { failureCallback?: CallbackSettings | null } | null,
): ContentRefusal {
  return findDisclosureRefusal(scope, {
    content: `a failure of the run ${run.runId.slice(0, 200)}`,
    urls: listAllCallbackUrls({
      callback: null,
      failureCallback: pickOwnFailureCallback(run, post),
    }),
    allowedUrls: [run.url, ...listAllCallbackUrls(run.settings)],
  });
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
  const invokerRefusal = refusal ?? (invoking && findFailureRefusal(scope, invoking.run, invoker));
  if (invokerRefusal) return invokerRefusal;
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

/** Returns why a token may not let a step of a run wait and continue as the post says; null if it may. */
export function findWaitContentRefusal(
  scope: Scope,
  run: Run,
  post: { url: string; timeoutUrl: string; failureCallback?: CallbackSettings },
): ContentRefusal {
  const content = describeHistory(run.runId);
  const urls = [post.url, post.timeoutUrl];
  return (
    findDisclosureRefusal(scope, { content, urls, allowedUrls: [run.url] }) ??
    findFailureRefusal(scope, run, post)
  );
}
