import { z } from "zod";
import { headerMap } from "../../../core/sending/callback.ts";
import { Refusal } from "../../../core/values/errors.ts";
import { limits } from "../../../core/values/limits.ts";
import type { Bytes } from "../../../core/model/message.ts";
import { listSenderHeaders } from "../../settings/forward.ts";
import { toEventAddress, parseHookParams } from "../../publishing/hookUrl.ts";
import type { RouteResponse, IncomingRequest, RouteContext, Route } from "../../route/route.ts";
import { findCurrentRunId } from "../../publishing/currentRun.ts";
import { base64 } from "../../../core/values/base64.ts";

const methods = ["POST", "GET", "PUT", "PATCH", "DELETE"] as const;

const acceptedSchema = z.object({ accepted: z.literal(true).describe("The run goes on with it, or it is kept until the run asks.") });

const makeHookRoute = (method: (typeof methods)[number]): Route => ({
  method,
  path: "/v2/workflows/hooks/{userId}/{workflowRunId}/{eventId}",
  tag: "Events",
  access: "hook",
  summary: "Call a webhook of a run",
  unaudited: "a run goes on with it, which its history tells",
  about: `What a third party calls at the URL that a run has made for it. The step that waits for it goes on with method, headers, body and URL of the call; of several, the first. When none waits yet, the call is kept for the next one; of a run that has ended nothing is known any more, but one that was resumed is reached still. A run keeps ${limits.notifications} calls and events at most. HEAD and OPTIONS are no calls: browsers and those who look at links send them beforehand, and the run would go on with that.`,
  params: z.object({}),
  query: z.object({}),
  ...(method === "GET"
    ? {}
    : { body: { about: "Any bytes.", contentType: "*/*", schema: z.string(), required: false, maxBytes: limits.messageBytes } }),
  answers: { 200: { about: "It is taken.", schema: acceptedSchema } },
  refusals: ["not-found", "limit-exceeded", "storage-quota-exceeded"],
  respond: (incoming, context) => receiveCall(method, incoming, context),
});

/** The URLs of webhooks: whoever knows one can call it, and do nothing else. */
export const hooks = methods.map(makeHookRoute);

async function receiveCall(method: string, incoming: IncomingRequest, { store }: RouteContext): Promise<RouteResponse> {
  const hook = toEventAddress(parseHookParams(incoming.params));
  const body = formatCall(method, incoming);
  const { account, event, runId } = hook;
  await store.execute("notify", { account, event, body, runId: (await findCurrentRunId(store, hook)) ?? runId, kind: "webhook" });
  return { status: 200, body: { accepted: true } };
}

/**
 * A call as the endpoint reads it (protocol 6.13). It makes a request of it again, at the URL that was called, so a
 * call from which none can be made is refused here, where it does no harm.
 */
function formatCall(method: string, { target, origin, rawHeaders, body }: IncomingRequest): Bytes {
  const [, proto, host] = /^(https?):\/\/([^/?#@]+)$/i.exec(origin) ?? [];
  const url = `${target.path}${target.query === null ? "" : `?${target.query}`}`;
  if (proto === undefined || host === undefined || !URL.canParse(`${origin}${url}`))
    throw new Refusal("invalid", "host: there is no valid Host in the request");
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
