import { createHmac } from "node:crypto";
import type { InjectOptions } from "fastify";
import { expect } from "vitest";
import type { Reply, TestServer } from "../../api/testServer.ts";

/** The destination of a source whose destination does not matter. */
export const destination = "https://shop.example/hook?key=k";
/** The verification of calls as GitHub signs them. */
export const github = { scheme: "github", secret: "gh-secret" };

/** A new source: its id, its URL, and the path and the secret of that. */
export type Made = { sourceId: string; url: string; path: string; secret: string };

/** Creates a source. `fields`: its properties, besides a default destination. */
export async function make(
  { ask }: Pick<TestServer, "ask">,
  fields: object = {},
  token?: string,
): Promise<Made> {
  const body = JSON.stringify({ destination, ...fields });
  const reply = await ask("POST", "/v2/sources", { body, ...(token === undefined ? {} : { token }) });
  expect(reply.body).not.toHaveProperty("error");
  expect(reply.status).toBe(201);
  const { sourceId, url } = reply.body as { sourceId: string; url: string };
  const path = new URL(url).pathname;
  return { sourceId, url, path, secret: path.slice("/v2/in/".length) };
}

/** Changes properties of a source. */
export const change = ({ ask }: TestServer, id: string, fields: object): Promise<Reply> =>
  ask("PATCH", `/v2/sources/${id}`, { body: JSON.stringify(fields) });

/** A call to a source. */
type Call = { method?: "POST" | "GET"; headers?: Record<string, string>; body?: string | Buffer };

type Called = { status: number; text: string; headers: Record<string, unknown> };

/** Calls a source like a sender: without a token. */
export async function call(
  { api }: TestServer,
  path: string,
  { method = "POST", headers = {}, body }: Call = {},
): Promise<Called> {
  const request: InjectOptions = {
    method,
    url: path,
    headers,
    ...(body === undefined ? {} : { payload: body }),
  };
  const { statusCode, body: text, headers: answered } = await api.inject(request);
  return { status: statusCode, text, headers: answered };
}

/** Returns the headers of a call with this body, signed like those of GitHub. */
export const signed = (
  body: string | Buffer,
  { secret = "gh-secret", event = "evt-1" } = {},
): Record<string, string> => ({
  "content-type": "application/json",
  "x-github-delivery": event,
  "x-hub-signature-256": `sha256=${createHmac("sha256", secret).update(body).digest("hex")}`,
});

/** Returns the rejected calls of a source, newest first. */
export const rejectionsOf = async ({ ask }: TestServer, { sourceId }: Made) =>
  (await ask("GET", `/v2/sources/${sourceId}/rejections`)).body.rejections as Record<string, unknown>[];
