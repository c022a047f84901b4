import { laneName } from "../../../../src/engine/core/admission/capacity.ts";
import { noBytes } from "../../../../src/engine/core/values/basics.ts";
import { type Delivery } from "../../../../src/engine/core/model/delivery.ts";
import { BodyByteBudget } from "../../../../src/engine/delivery/http/bodyBytes.ts";
import { createLongWork, systemClock } from "../../../../src/engine/clock/clock.ts";
import { createDeliver } from "../../../../src/engine/delivery/deliver.ts";
import { createEgress } from "../../../../src/engine/delivery/http/egress.ts";

// Runs in its own process, so that its memory is that of the responses. It makes many calls to a third party
// at once and prints their responses.

const [given = "", count = "0", budget = "0"] = process.argv.slice(2);
const sent = JSON.parse(given) as Delivery;
const delivery: Delivery = { ...sent, message: { ...sent.message, body: noBytes } };

const { deliver, close } = createDeliver({
  egress: createEgress({ allow: ["127.0.0.0/8"] }),
  clock: systemClock,
  longWork: createLongWork(),
  limits: {
    responseBytes: 1024 * 1024,
    maxBody: 8 * 1024 * 1024,
    connectTimeout: 10_000,
    connectionsPerOrigin: 1_000,
  },
  region: "US-EAST-1",
  newId: (kind) => kind,
});
const bytes = new BodyByteBudget(Number(budget));
let most = 0;
const look = setInterval(() => {
  // The second waits until the memory that the first has found is free.
  globalThis.gc?.();
  globalThis.gc?.();
  most = Math.max(most, process.memoryUsage().arrayBuffers);
}, 250);
const ended = await Promise.all(
  Array.from({ length: Number(count) }, async () => {
    const room = bytes.openRoom(laneName("acme", "shop.example"));
    const outcome = await deliver(delivery, room).outcome;
    room.close();
    return outcome.error ?? `${outcome.status} ${outcome.body.byteLength}`;
  }),
);
clearInterval(look);
await close();
process.stdout.write(JSON.stringify({ most, free: bytes.free, ended: [...new Set(ended)] }));
