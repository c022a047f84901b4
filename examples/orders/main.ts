import { serve } from "@hono/node-server";
import { serveMany } from "@upstash/workflow/hono";
import { Hono } from "hono";
import { invoice, order } from "./workflows.ts";

// npm run example: an app whose workflows are run by the Waypost server that QSTASH_URL and QSTASH_TOKEN name; without
// them, by a development server on this machine. It asks for nothing else.
process.env.QSTASH_URL ??= "http://127.0.0.1:8080";
// The well-known token of development mode.
process.env.QSTASH_TOKEN ??= "eyJVc2VySUQiOiJkZWZhdWx0VXNlciIsIlBhc3N3b3JkIjoiZGVmYXVsdFBhc3N3b3JkIn0=";

const port = Number(process.env.PORT ?? 3000);
const app = new Hono();
app.post("/workflows/:name", serveMany({ order, invoice }));
// The service of somebody else.
app.post("/carrier/labels", (context) => context.json({ tracking: "1Z-0001" }));

serve({ fetch: app.fetch, port, hostname: "127.0.0.1" }, ({ port: open }) => {
  console.log(`the shop is open at http://127.0.0.1:${open}; workflows: /workflows/order, /workflows/invoice`);
});
