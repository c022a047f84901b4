import type { FastifyReply, FastifyRequest } from "fastify";
import type { Millis } from "../../engine/core/values/basics.ts";
import { errorCodes, Refusal } from "../../engine/core/values/errors.ts";
import { second } from "../../engine/core/values/time.ts";
import type { LineStream } from "../http/lineStream.ts";
import { PacedSocket } from "../route/pipelining.ts";
import type { RouteContext } from "../route/route.ts";
import { formatRefusal } from "../http/remedies.ts";

/** How often the credentials of the client are checked. */
const recheckInterval: Millis = 5 * second;
/** How long a client may take to receive the last line. */
const closeGrace: Millis = 2 * second;

type LineResponse = Pick<RouteContext, "wakeAfter"> & {
  body: LineStream;
  /** Checks the credentials and the rights of the request. Rejects with `Refusal`. */
  recheck(): Promise<void>;
};

/**
 * Sends a stream of lines until it ends or the client has gone. The stream ends if the request would now be
 * refused: its token was revoked or has expired, its session has ended, or its account was disabled. It
 * continues while the storage is unavailable.
 */
export function sendLines(
  request: FastifyRequest,
  reply: FastifyReply,
  { body, recheck, wakeAfter }: LineResponse,
): FastifyReply {
  const { raw } = reply;
  request.beganAfter = reply.elapsedTime;
  if (raw.destroyed) {
    body.destroy();
    return reply.send();
  }
  const check = async (): Promise<void> => {
    try {
      await recheck();
    } catch (error) {
      if (error instanceof Refusal && errorCodes[error.code].status < 500)
        return body.finish(JSON.stringify({ ended: formatRefusal(error), code: error.code }));
    }
    if (!raw.destroyed) stopCheck = wakeAfter(recheckInterval, () => void check());
  };
  let stopCheck = wakeAfter(recheckInterval, () => void check());
  let stopGrace = (): void => undefined;
  body.once("last", () => {
    stopGrace = wakeAfter(closeGrace, () => void raw.destroy());
  });
  raw.once("close", () => {
    stopCheck();
    stopGrace();
    body.destroy();
  });
  if (raw.socket instanceof PacedSocket) raw.socket.watchForEnd();
  return reply.send(body);
}
