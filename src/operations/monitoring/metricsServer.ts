import type { Server, ServerResponse } from "node:http";
import { createServer } from "node:http";
import { once } from "node:events";
import type { MetricsFormat } from "./metricsText.ts";
import { contentTypes, pickFormat } from "./metricsText.ts";

/** The path of the metrics. */
export const metricsPath = "/metrics";
/** One scraper needs one connection. */
const maxConnections = 32;

/**
 * Listens for scrapes, without a token: anyone who can connect may read the figures of the whole server.
 * Other paths do not exist.
 */
export async function listenForScrapes(
  read: (format: MetricsFormat) => string,
  at: { port: number; host: string },
): Promise<Server> {
  const server = createServer({ requestTimeout: 10_000, headersTimeout: 10_000 }, (request, response) => {
    const { method = "", url = "", headers } = request;
    if (url.split("?", 1)[0] !== metricsPath)
      return end(response, 404, "no such path; metrics are at /metrics\n");
    if (method !== "GET" && method !== "HEAD") return end(response, 405, "use GET\n");
    const format = pickFormat(headers.accept);
    response.setHeader("content-type", contentTypes[format]);
    end(response, 200, read(format));
  });
  server.maxConnections = maxConnections;
  server.listen(at.port, at.host);
  await once(server, "listening");
  return server;
}

function end(response: ServerResponse, status: number, text: string): void {
  if (!response.hasHeader("content-type")) response.setHeader("content-type", "text/plain; charset=utf-8");
  response.writeHead(status, {
    "content-length": Buffer.byteLength(text),
    "x-content-type-options": "nosniff",
  });
  response.end(text);
}
