import { serve } from "@hono/node-server";
import { serveMany } from "@upstash/workflow/hono";
import { Hono } from "hono";
// In your own app, import it from "waypost/workflow".
import { runOn } from "../../launch/workflow.js";
import { createWorkflows } from "./workflows.ts";

// npm run example: an app whose workflows run on the Waypost server in QSTASH_URL and QSTASH_TOKEN. The
// default is a development server on this machine.
process.env.QSTASH_URL ??= "http://127.0.0.1:8080";
// The well-known token of development mode.
process.env.QSTASH_TOKEN ??= "eyJVc2VySUQiOiJkZWZhdWx0VXNlciIsIlBhc3N3b3JkIjoiZGVmYXVsdFBhc3N3b3JkIn0=";

const port = Number(process.env.PORT ?? 3000);
const app = new Hono();
app.post("/workflows/:name", serveMany(createWorkflows()));
// The same workflows, with several steps in one call.
app.post("/run-on/:name", serveMany(createWorkflows(runOn)));
// Represents a third party's service.
app.post("/carrier/labels", (context) => context.json({ tracking: "1Z-0001" }));

serve({ fetch: app.fetch, port, hostname: "127.0.0.1" }, ({ port: open }) => {
  console.log(
    `the shop is open at http://127.0.0.1:${open}; workflows: /workflows/order, /workflows/invoice; ` +
      "with several steps in one call: /run-on/order, /run-on/invoice",
  );
});
