import { serve } from "@hono/node-server";
import { Client } from "@upstash/qstash";
import type { WorkflowContext } from "@upstash/workflow";
import { createWorkflow, serveMany } from "@upstash/workflow/hono";
import { Hono } from "hono";
import { hostileText } from "./hostile.ts";

/** The endpoints that the messages of a seeded server go to. */
export type Destinations = { url: string; failsReceipt: boolean; close(): void };

/** Starts endpoints that respond, fail, are slow, and run workflows on the server with this URL and token. */
export async function startDestinations(server: { url: string; token: string }): Promise<Destinations> {
  const app = new Hono();
  const state: Destinations = { url: "", failsReceipt: true, close: () => undefined };
  app.all("/ok/*", (context) => context.json({ taken: true }));
  app.all("/fail/*", (context) =>
    context.text("upstream connect error or disconnect/reset before headers", 503),
  );
  app.all("/unknown-sku/*", (context) => context.json({ error: "unknown sku" }, 422));
  app.all("/hostile/*", (context) => context.text(hostileText.value, 500, { "x-from": "hostile" }));
  // Never responds, so its messages stay in flight.
  app.all("/slow/*", () => new Promise<Response>(() => undefined));
  const qstashClient = new Client({ baseUrl: server.url, token: server.token });
  app.post("/workflows/:name", (context) =>
    serveMany(makeWorkflows(state), { qstashClient, receiver: undefined } as never)(context as never),
  );
  await new Promise<void>((resolve) => {
    const listening = serve({ fetch: app.fetch, port: 0, hostname: "127.0.0.1" }, ({ port }) => {
      state.url = `http://127.0.0.1:${port}`;
      resolve();
    });
    state.close = () => {
      listening.close();
      if ("closeAllConnections" in listening) listening.closeAllConnections();
    };
  });
  return state;
}

type Order = { id: string; waits?: boolean };

/** Returns an error as an application would throw it. Its stack is the same on every machine. */
function makeApplicationError(message: string): Error {
  const error = new Error(message);
  const calls = ["sendReceipt (/app/receipt.ts:12:31)", "order (/app/order.ts:21:5)"];
  error.stack = [`Error: ${message}`, ...calls.map((call) => `    at ${call}`)].join("\n");
  return error;
}

function makeWorkflows(state: Destinations) {
  const invoice = createWorkflow(async (context: WorkflowContext<Order>) => {
    const { id } = context.requestPayload;
    return context.run("write", () => `INV-${id}`);
  });
  const order = createWorkflow(async (context: WorkflowContext<Order>) => {
    const { id, waits = false } = context.requestPayload;
    await context.run("check", () => ({ id, items: 3 }));
    await context.sleep("time to change one's mind", 1);
    await Promise.all([
      context.run("charge", () => ({ amount: 42.5, receipt: `receipt-${id}` })),
      context.run("reserve", () => "shelf 7"),
    ]);
    if (waits) await context.waitForEvent("shipped", `shipped-${id}`, { timeout: "1d" });
    const { body } = await context.invoke("invoice", { workflow: invoice, body: { id } });
    await context.run("send receipt", () => {
      if (state.failsReceipt)
        throw makeApplicationError("Cannot read properties of undefined (reading 'email')");
      return { sent: true, invoice: body };
    });
  });
  const long = createWorkflow(async (context: WorkflowContext<{ steps: number }>) => {
    for (let at = 0; at < context.requestPayload.steps; at++) await context.run(`page ${at + 1}`, () => at);
  });
  const hostile = createWorkflow(async (context: WorkflowContext) => {
    await context.run(hostileText.value, () => hostileText.value);
    await context.run(`${hostileText.value} 2`, () => {
      throw new Error("<img src=x>");
    });
  });
  return { order, invoice, long, hostile };
}
