import type { Delivery } from "../src/engine/core/model/delivery.ts";

/** Returns a delivery whose message has the body that is sent, as one piece. */
export const withSentBody = ({ history, ...delivery }: Delivery): Delivery =>
  history
    ? { ...delivery, message: { ...delivery.message, body: new Uint8Array(Buffer.concat(history.parts)) } }
    : delivery;
