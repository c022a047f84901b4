import { ConnectionLost } from "./http/connection.ts";
import { EgressRefusal } from "./http/egress.ts";
import { PoolClosed } from "./http/pool.ts";
import { BadResponse } from "./http/response.ts";
import { ProxyFailure } from "./http/tunnel.ts";

/** Thrown for a message that cannot be sent over HTTP. The text may be shown to the publisher. */
export class Unsendable extends Error {}

/** The error of an attempt that was aborted. */
export const abortedError = "aborted";

/** Returns why there is no response: a short text that contains nothing of what was received. */
export function toErrorText(error: unknown): string {
  if (error instanceof EgressRefusal || error instanceof Unsendable) return error.message;
  if (error instanceof BadResponse || error instanceof ProxyFailure) return error.message;
  if (error instanceof ConnectionLost) return lostError;
  if (error instanceof PoolClosed) return abortedError;
  const code = readErrorCode(error);
  const known = errorTexts[code];
  if (known !== undefined) return known;
  if (notTlsCodes.has(code))
    return (
      `TLS problem: the destination does not speak TLS on this port (${code}); ` +
      "use http:// or another port"
    );
  if (/^(ERR_TLS|ERR_SSL|EPROTO)|CERT|_SIGNATURE|HOSTNAME_MISMATCH/.test(code)) return `TLS problem: ${code}`;
  return code === "" ? "the request failed" : `the request failed: ${code}`;
}

const readErrorCode = (error: unknown): string =>
  typeof error === "object" && error !== null && "code" in error && typeof error.code === "string"
    ? error.code
    : "";

/** Error codes of a destination that answers the TLS handshake with something else. */
const notTlsCodes: ReadonlySet<string> = new Set([
  "ERR_SSL_WRONG_VERSION_NUMBER",
  "ERR_SSL_PACKET_LENGTH_TOO_LONG",
  "ERR_SSL_UNKNOWN_PROTOCOL",
  "ERR_SSL_HTTP_REQUEST",
]);

const lostError = "connection lost before the response was complete";

const errorTexts: Readonly<Record<string, string>> = {
  ECONNREFUSED: "connection refused",
  ECONNRESET: lostError,
  EPIPE: lostError,
  ETIMEDOUT: "connecting timed out",
  UND_ERR_CONNECT_TIMEOUT: "connecting timed out",
  ENOTFOUND: "name not found",
  EAI_AGAIN: "name not found: the name server did not respond",
  EHOSTUNREACH: "address unreachable",
  ENETUNREACH: "address unreachable",
  EADDRNOTAVAIL: "address unreachable",
};
