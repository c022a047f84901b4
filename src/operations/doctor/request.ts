import { request as requestHttp, type ClientRequest } from "node:http";
import { request as requestHttps } from "node:https";
import { text as readText } from "node:stream/consumers";
import { alarm } from "../../engine/clock/clock.ts";
import type { Millis } from "../../engine/core/values/basics.ts";

/** A response, with its first characters. */
export type Reply = { status: number; text: string };

/** How long a server or a proxy may take for a response, and for each MiB of a body as well. */
const responseTimeout: Millis = 5_000;

/** How long a response may follow after 100 Continue. Some programs ask for each body, and then refuse it. */
const continueTime: Millis = 1_000;

/**
 * `body` is sent at once, with `headers`. `length` announces a body with `Expect: 100-continue`, which is
 * never sent.
 */
export type SentBody = { body: Uint8Array; headers?: Record<string, string> } | { length: number };

/** A request without a body, with headers. Of its response, `maxText` characters are returned. */
type Asking = { headers: Record<string, string>; maxText: number };

/** The number of characters of a response that are returned. */
const shownText = 500;

/**
 * Sends a request to a server, and returns its response. Sends the path as it is: `fetch` would resolve `..`
 * in it. Does not follow redirects. If the other side asks for an announced body and does not respond within
 * 1 s, the status is 100.
 */
export async function requestReply(url: string, path: string, asking?: SentBody | Asking): Promise<Reply> {
  const { protocol, hostname, port } = new URL(url);
  const isAlone = asking === undefined || "maxText" in asking;
  const body = asking && "body" in asking ? asking.body : undefined;
  const request = protocol === "https:" ? requestHttps : requestHttp;
  const sent = request({
    ...{ protocol, port, path, hostname: hostname.replace(/^\[|\]$/g, "") },
    method: isAlone ? "GET" : "POST",
    headers: isAlone ? asking?.headers : toBodyHeaders(asking),
    agent: false,
    signal: AbortSignal.timeout(responseTimeout * (1 + Math.ceil((body?.length ?? 0) / 1024 ** 2))),
  });
  const isAnnounced = asking !== undefined && "length" in asking;
  const reply = awaitReply(sent, asking && "maxText" in asking ? asking.maxText : shownText);
  if (isAnnounced) sent.flushHeaders();
  else sent.end(body);
  try {
    return await reply;
  } finally {
    if (isAnnounced) sent.destroy();
  }
}

/** Rejects if the connection ends before the response. */
const awaitReply = (sent: ClientRequest, maxText: number): Promise<Reply> =>
  new Promise((resolve, reject) => {
    let isAnswered = false;
    sent.once("response", (response) => {
      isAnswered = true;
      const { statusCode: status = 0 } = response;
      readText(response).then((text) => resolve({ status, text: text.slice(0, maxText) }), reject);
    });
    sent.once("continue", () => {
      const stopAlarm = alarm(continueTime, () => resolve({ status: 100, text: "" }));
      sent.once("close", stopAlarm);
    });
    sent.on("error", (error) => {
      if (!isAnswered) reject(error);
    });
    sent.once("close", () => {
      if (!isAnswered) reject(new Error("the connection ended without a response"));
    });
  });

function toBodyHeaders(sentBody: SentBody): Record<string, string | number> {
  if ("body" in sentBody) return { ...sentBody.headers, "content-length": sentBody.body.length };
  return { "content-length": sentBody.length, expect: "100-continue" };
}
