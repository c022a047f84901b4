import { createHash } from "node:crypto";
import type { FastifyReply, FastifyRequest } from "fastify";

/**
 * Adds an ETag, a hash of the response, to the response of a read. Reports whether the caller has this
 * response already (`If-None-Match`), and then turns it into a 304 without a body. A response that must not
 * be kept, because it has secrets, gets no ETag.
 */
export function isUnchanged(request: FastifyRequest, reply: FastifyReply, payload: unknown): boolean {
  if (!["GET", "HEAD"].includes(request.method) || reply.statusCode !== 200) return false;
  if (typeof payload !== "string" && !Buffer.isBuffer(payload)) return false;
  if (reply.getHeader("Cache-Control") === "no-store") return false;
  const tag = `"${createHash("sha256").update(payload).digest("base64url").slice(0, 27)}"`;
  void reply.header("ETag", tag);
  if (!listTags(request.headers["if-none-match"]).includes(tag)) return false;
  void reply.code(304).removeHeader("Content-Length").removeHeader("Content-Type");
  return true;
}

/** Returns the tags of If-None-Match without the mark of a proxy that has compressed the response (`W/`). */
const listTags = (header = ""): string[] => header.split(",").map((tag) => tag.trim().replace(/^W\//, ""));
