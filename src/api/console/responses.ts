import { createHash } from "node:crypto";
import type { FastifyReply, FastifyRequest } from "fastify";

/**
 * Adds the headers of every response to a session. The browser must check a kept response before it uses it,
 * and must not guess a type from bytes that a stranger has sent. A response with a secret is not kept at all.
 */
export function addSessionHeaders(reply: FastifyReply): void {
  if (!reply.hasHeader("Cache-Control")) reply.header("Cache-Control", "private, no-cache");
  void reply.header("X-Content-Type-Options", "nosniff").header("Vary", "Cookie");
}

/**
 * Adds an ETag to the response of a read. Reports whether the browser has this response already, and then
 * turns it into a 304 without a body.
 */
export function isUnchanged(request: FastifyRequest, reply: FastifyReply, payload: unknown): boolean {
  if (request.method !== "GET" || reply.statusCode !== 200) return false;
  if (typeof payload !== "string" && !Buffer.isBuffer(payload)) return false;
  const tag = `"${createHash("sha256").update(payload).digest("base64url").slice(0, 27)}"`;
  void reply.header("ETag", tag);
  if (request.headers["if-none-match"] !== tag) return false;
  void reply.code(304).removeHeader("Content-Length").removeHeader("Content-Type");
  return true;
}
