import { createServer } from "node:http";
import type { IncomingMessage, Server, ServerResponse } from "node:http";
import { once } from "node:events";
import { styleText } from "node:util";
import { brandNames } from "../../engine/core/values/brand.ts";
import { systemClock } from "../../engine/clock/clock.ts";
import { verifyJwt, verifyStandard } from "../../engine/delivery/signature.ts";

/** How the test receiver responds. `delay` is in milliseconds. `keys` are the signing keys it accepts. */
export type ListenOptions = {
  port: number;
  host: string;
  status: number;
  delay: number;
  keys: readonly string[];
  print: (text: string) => void;
};

/**
 * Starts a test receiver: it prints each request, verifies its signature, and responds with `status` after
 * `delay`.
 */
export async function listen({ port, host, status, delay, keys, print }: ListenOptions): Promise<Server> {
  let count = 0;
  const respond = async (request: IncomingMessage, response: ServerResponse): Promise<void> => {
    const body = await readBody(request);
    const number = ++count;
    print(formatRequest({ request, body, number, keys }));
    if (delay > 0) await systemClock.sleep(systemClock.now() + delay, new AbortController().signal);
    response.writeHead(status, { "content-type": "text/plain" }).end(`received ${number}\n`);
    print(styleText("dim", `   answered ${status}${delay > 0 ? ` after ${delay} ms` : ""}`));
  };
  const server = createServer((request, response) => {
    respond(request, response).catch((error: unknown) =>
      print(styleText("red", `   failed: ${String(error)}`)),
    );
  });
  server.listen(port, host);
  await once(server, "listening");
  return server;
}

/** The maximum number of bytes of a body that are printed. */
const maxShownBytes = 4096;

async function readBody(request: IncomingMessage): Promise<Buffer> {
  const chunks: Buffer[] = [];
  for await (const chunk of request) chunks.push(chunk as Buffer);
  return Buffer.concat(chunks);
}

type ReceivedRequest = { request: IncomingMessage; body: Buffer; number: number; keys: readonly string[] };

function formatRequest({ request, body, number, keys }: ReceivedRequest): string {
  const time = new Date(systemClock.now()).toISOString().slice(11, 23);
  const title = styleText("bold", `${time} #${number} ${request.method} ${request.url}`);
  const headers = Object.entries(request.headers).filter(
    ([name]) => !hiddenHeaders.has(name) && !name.endsWith("-signature"),
  );
  const lines = headers.map(([name, value]) => styleText("dim", `   ${name}: ${String(value)}`));
  const shown =
    body.subarray(0, maxShownBytes).toString("utf8") +
    (body.length > maxShownBytes ? ` … (${body.length} bytes)` : "");
  return [
    title,
    ...lines,
    `   ${formatSignature(request, body, keys)}`,
    ...formatStandardSignature(request, body, keys),
    ...(shown === "" ? [] : [`   ${shown}`]),
  ].join("\n");
}

const hiddenHeaders = new Set(["host", "connection", "content-length", "keep-alive"]);

function formatSignature(request: IncomingMessage, body: Buffer, keys: readonly string[]): string {
  const name = Object.values(brandNames)
    .map(({ prefix }) => `${prefix}-Signature`)
    .find((header) => request.headers[header.toLowerCase()] !== undefined);
  const token = name && request.headers[name.toLowerCase()];
  if (typeof token !== "string") return styleText("yellow", "no signature: this did not come from Waypost");
  const claims = verifyJwt(token, { keys, body, now: systemClock.now() });
  if (claims) return styleText("green", `${name}: valid, for ${claims.sub}`);
  return styleText(
    "red",
    `${name}: NOT valid for the keys of this receiver; ` +
      "set WAYPOST_CURRENT_SIGNING_KEY and WAYPOST_NEXT_SIGNING_KEY",
  );
}

/** Returns a line on the signature of a delivery that is also signed by Standard Webhooks, or none. */
function formatStandardSignature(
  { headers }: IncomingMessage,
  body: Buffer,
  keys: readonly string[],
): string[] {
  const [id, timestamp, signature] = ["webhook-id", "webhook-timestamp", "webhook-signature"].map(
    (name) => headers[name],
  );
  if (typeof id !== "string" || typeof timestamp !== "string" || typeof signature !== "string") return [];
  const isValid = verifyStandard({ id, timestamp, signature, body, keys, now: systemClock.now() });
  const result = isValid
    ? styleText("green", "webhook-signature: valid")
    : styleText("red", "webhook-signature: NOT valid for the keys of this receiver");
  return [`   ${result}`];
}
