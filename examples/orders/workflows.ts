import { WorkflowNonRetryableError, type WorkflowContext } from "@upstash/workflow";
import { createWorkflow } from "@upstash/workflow/hono";
import { charge, notifyWarehouse, reserve, writeInvoice, type Order } from "./shop.ts";

/** Writes the invoice of an order: a workflow of its own, which other workflows can invoke. */
export const invoice = createWorkflow(async (context: WorkflowContext<Order>) => {
  const { id, items } = context.requestPayload;
  const number = await context.run("number", () => `INV-${id}`);
  return context.run("write", () => writeInvoice(number, items));
});

/**
 * Takes an order through to its delivery. Each step runs once and its result is kept: when this process crashes, is
 * started anew, or a step fails and is repeated, the steps before it are not run again.
 */
export const order = createWorkflow(
  async (context: WorkflowContext<Order>) => {
    const { id, items, carrier } = context.requestPayload;

    await context.run("check", () => {
      if (items.length === 0) throw new WorkflowNonRetryableError(`order ${id} has nothing in it`);
    });

    // Nothing runs while it sleeps: not here, and not in the server.
    await context.sleep("time to change one's mind", 2);

    // Both at once.
    const [paid, place] = await Promise.all([context.run("charge", () => charge(id, items)), context.run("reserve", () => reserve(items))]);

    // A request to somebody else, made and repeated by the server. Here nobody waits for the answer.
    const label = await context.call<{ tracking: string }>("print label", {
      url: `${carrier}/labels`,
      method: "POST",
      body: JSON.stringify({ order: id, place }),
      retries: 3,
    });
    await context.run("tell the warehouse", () => notifyWarehouse(id, label.body.tracking));

    // Until somebody says POST /v2/notify/shipped-<id>, or a day has passed.
    const { eventData, timeout } = await context.waitForEvent<{ at: string }>("shipped", `shipped-${id}`, { timeout: "1d" });
    if (timeout) return { id, state: "lost" };

    const { body: bill } = await context.invoke("invoice", { workflow: invoice, body: context.requestPayload });
    return { id, state: "shipped", at: eventData?.at, paid, bill };
  },
  {
    // Called once, when a step has failed for good. The run is in the dead letter queue then, and can be resumed.
    failureFunction: async ({ context, failResponse }) => {
      console.log(`order ${context.requestPayload.id} failed: ${failResponse}`);
      return "the customer was told";
    },
  },
);
