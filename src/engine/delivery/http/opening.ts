import type { Socket } from "node:net";
import type { OpeningTiming } from "../../core/model/attempt.ts";
import { elapsed } from "../../clock/clock.ts";

/**
 * Notes when the parts of opening a socket end. Returns a function that returns how long each took, at the
 * time when the socket is open. Null: the socket did not report its connection.
 */
export function measureOpening(socket: Socket, isSecure: boolean): () => OpeningTiming | null {
  const began = elapsed();
  let lookedUp: number | null = null;
  let connected: number | null = null;
  // The event comes once for each address of a name.
  socket.once("lookup", () => (lookedUp = elapsed()));
  // The connector reports the socket of plain HTTP in its own listener of the same event.
  socket.prependOnceListener("connect", () => (connected = elapsed()));
  return () => {
    if (connected === null) return null;
    const span = (from: number, to: number): number => Math.max(0, Math.round(to - from));
    return {
      ...(lookedUp === null ? {} : { lookup: span(began, lookedUp) }),
      tcp: span(lookedUp ?? began, connected),
      ...(isSecure ? { tls: span(connected, elapsed()) } : {}),
    };
  };
}
