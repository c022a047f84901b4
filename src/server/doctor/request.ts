import { request as requestHttp } from "node:http";
import { request as requestHttps } from "node:https";
import { text as readText } from "node:stream/consumers";
import type { Millis } from "../../core/model/message.ts";

/** A response, with its first 500 characters. */
export type Reply = { status: number; text: string };

/** How long a server or a proxy may take for a response. */
const responseTimeout: Millis = 5_000;

/**
 * Sends a request to a server, and returns its response. Sends the path as it is: `fetch` would resolve `..`
 * in it. Does not follow redirects.
 */
export function requestReply(url: string, path: string, body?: Uint8Array): Promise<Reply> {
  const { protocol, hostname, port } = new URL(url);
  return new Promise((resolve, reject) => {
    const request = protocol === "https:" ? requestHttps : requestHttp;
    const sent = request(
      {
        ...{ protocol, port, path, hostname: hostname.replace(/^\[|\]$/g, "") },
        method: body ? "POST" : "GET",
        agent: false,
        signal: AbortSignal.timeout(responseTimeout),
      },
      (response) => {
        const { statusCode = 0 } = response;
        readText(response).then((text) => resolve({ status: statusCode, text: text.slice(0, 500) }), reject);
      },
    );
    sent.on("error", reject).end(body);
  });
}
