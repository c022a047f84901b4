import { z } from "zod";
import { headerMap } from "../../../engine/core/sending/callback.ts";
import { Refusal } from "../../../engine/core/values/errors.ts";
import { limits } from "../../../engine/core/values/limits.ts";
import type { Bytes } from "../../../engine/core/values/basics.ts";
import { listSenderHeaders } from "../../settings/forward.ts";
import { toEventAddress, parseHookParams } from "../../publishing/hookUrl.ts";
import type { RouteResponse, IncomingRequest, RouteContext, Route } from "../../route/route.ts";
import { findCurrentRunId } from "../../publishing/currentRun.ts";
import { base64 } from "../../../engine/core/values/base64.ts";

const methods = ["POST", "GET", "PUT", "PATCH", "DELETE"] as const;

const acceptedSchema = z.object({
  accepted: z
    .literal(true)
    .describe("The run continues with the call, or the call is kept until the run waits."),
});

const makeHookRoute = (method: (typeof methods)[number]): Route => ({
  method,
  path: "/v2/workflows/hooks/{userId}/{workflowRunId}/{eventId}",
  tag: "Events",
  access: "hook",
  summary: "Call a webhook of a run",
  unaudited: "it continues a run, whose history records it",
  about:
    "Called by a third party at the URL that a run has created for it. " +
    "The step that waits for the call continues with the method, headers, body and URL of the call. " +
    "If several steps wait, the first continues. " +
    "If no step waits yet, the call is kept for the next one; " +
    `a run keeps at most ${limits.notifications} calls and events. ` +
    "After the run has ended, the URL is no longer valid, unless the run was resumed. " +
    "HEAD and OPTIONS do not count as calls: browsers and link previews send them first, and the run would " +
    "continue.",
  params: z.object({}),
  query: z.object({}),
  ...(method === "GET"
    ? {}
    : {
        body: {
          about: "Body of the call: any bytes.",
          contentType: "*/*",
          schema: z.string(),
          required: false,
          maxBytes: { messages: 1 },
        },
      }),
  answers: { 200: { about: "The call was accepted.", schema: acceptedSchema } },
  refusals: ["not-found", "limit-exceeded", "storage-quota-exceeded", "disk-low"],
  respond: (incoming, context) => receiveCall(method, incoming, context),
});

/** The routes of webhooks. A caller that knows the URL of a webhook can call it, and do nothing else. */
export const hooks = methods.map(makeHookRoute);

async function receiveCall(
  method: string,
  incoming: IncomingRequest,
  { store }: RouteContext,
): Promise<RouteResponse> {
  const hook = toEventAddress(parseHookParams(incoming.params));
  const body = formatCall(method, incoming);
  const { account, event, runId } = hook;
  await store.execute("notify", {
    account,
    event,
    body,
    runId: (await findCurrentRunId(store, hook)) ?? runId,
    kind: "webhook",
  });
  return { status: 200, body: { accepted: true } };
}

/**
 * Returns a call as the JSON that the endpoint reads. The endpoint's client turns the JSON
 * into a request to the URL that was called. Throws `Refusal` if that is not possible, because such a call
 * would fail the run.
 */
function formatCall(method: string, { target, origin, rawHeaders, body }: IncomingRequest): Bytes {
  const [, proto, host] = /^(https?):\/\/([^/?#@]+)$/i.exec(origin) ?? [];
  const url = `${target.path}${target.query === null ? "" : `?${target.query}`}`;
  if (proto === undefined || host === undefined || !URL.canParse(`${origin}${url}`))
    throw new Refusal("invalid", "host: missing or not valid; send a valid Host header");
  const call = {
    method,
    header: headerMap(listSenderHeaders(rawHeaders, null)),
    ...(body.length === 0 ? {} : { body: base64(body) }),
    proto,
    host,
    url,
  };
  return Buffer.from(JSON.stringify(call));
}
