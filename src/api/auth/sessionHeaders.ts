import type { FastifyReply } from "fastify";

/**
 * Adds the headers of every response to a session. The browser must check a kept response before it uses it,
 * and must not guess a type from bytes that a stranger has sent. A response with a secret is not kept at all.
 */
export function addSessionHeaders(reply: FastifyReply): void {
  if (!reply.hasHeader("Cache-Control")) reply.header("Cache-Control", "private, no-cache");
  void reply.header("X-Content-Type-Options", "nosniff").header("Vary", "Cookie");
}
