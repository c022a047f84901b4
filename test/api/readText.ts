import type { OutgoingHttpHeaders } from "node:http";
import type { Readable } from "node:stream";

/** Returns the text of a body. A stream has no end, so only what comes first is read, and it is closed. */
export async function readText(
  body: Readable,
  { "content-type": type }: OutgoingHttpHeaders,
): Promise<string> {
  const received: Buffer[] = [];
  for await (const chunk of body) {
    received.push(Buffer.from(chunk));
    if (/ndjson/.test(String(type))) break;
  }
  return Buffer.concat(received).toString();
}
