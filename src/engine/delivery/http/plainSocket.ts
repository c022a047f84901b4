import type { LookupFunction, Socket } from "node:net";
import { connect } from "node:net";
import type { Millis } from "../../core/values/basics.ts";
import { alarm } from "../../clock/clock.ts";

/** Opens a socket that has no reader yet. Rejects if it does not open in time. */
export function openSocket({
  timeout,
  ...target
}: {
  host: string;
  port: number;
  timeout: Millis;
  lookup: LookupFunction;
}): Promise<Socket> {
  return new Promise((resolve, reject) => {
    const socket = connect({ ...target, autoSelectFamily: true, autoSelectFamilyAttemptTimeout: 500 });
    const stopTimeout = alarm(timeout, () => socket.destroy(new Error("connecting timed out")));
    socket.once("error", (error) => {
      stopTimeout();
      reject(error);
    });
    socket.once("connect", () => {
      stopTimeout();
      resolve(socket);
    });
  });
}
