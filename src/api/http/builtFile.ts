import type { ServerResponse } from "node:http";

/** The headers of every built file that a browser shows, besides its content security policy. */
const securityHeaders = {
  "X-Content-Type-Options": "nosniff",
  "Referrer-Policy": "no-referrer",
  "Cross-Origin-Opener-Policy": "same-origin",
  "Cross-Origin-Resource-Policy": "same-origin",
  "Permissions-Policy": "camera=(), geolocation=(), microphone=(), payment=(), usb=()",
};

/** For files whose names contain a hash of their content, so their content never changes. */
export const cachedForever = "public, max-age=31536000, immutable";

/** The headers of a sentence for a person. */
export const plainText = { "Content-Type": "text/plain; charset=utf-8", "Cache-Control": "no-store" };

/**
 * A response. `policy` is its content security policy. `size` is the size of a body that is not sent, because
 * the request is a HEAD.
 */
export type BuiltResponse = {
  status: number;
  policy: string;
  headers: Record<string, string>;
  body: Buffer | null;
  size?: number;
};

/** Sends a built file, or a sentence about it, and returns the status. */
export function sendBuilt(response: ServerResponse, { status, policy, headers, body, size }: BuiltResponse) {
  const length = { "Content-Length": String(size ?? body?.length ?? 0) };
  response.writeHead(status, {
    "Content-Security-Policy": policy,
    ...securityHeaders,
    ...headers,
    ...length,
  });
  // Node.js sends no body to a HEAD.
  response.end(body ?? undefined);
  return status;
}

/** Reports whether a header `Accept-Encoding` allows an encoding. */
export const takesEncoding = (accepted: string | string[] | undefined, name: string): boolean =>
  new RegExp(String.raw`\b${name}\b(?!\s*;\s*q=0(\.0*)?\s*(,|$))`).test(String(accepted ?? ""));
