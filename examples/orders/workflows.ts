import { WorkflowNonRetryableError, type RouteFunction, type WorkflowContext } from "@upstash/workflow";
import { createWorkflow } from "@upstash/workflow/hono";
import { charge, notifyWarehouse, reserve, writeInvoice, type Order } from "./shop.ts";

type Wrapper = <Payload, Result>(route: RouteFunction<Payload, Result>) => RouteFunction<Payload, Result>;

/**
 * Returns the workflows of the shop. By default, each step has its own call. With `runOn` from
 * `waypost/workflow`, one call executes several steps; nothing else changes.
 */
export function createWorkflows(wrap: Wrapper = (route) => route) {
  /** Writes the invoice of an order. It is a separate workflow, so that other workflows can invoke it. */
  const invoice = createWorkflow(
    wrap(async (context: WorkflowContext<Order>) => {
      const { id, items } = context.requestPayload;
      const number = await context.run("number", () => `INV-${id}`);
      return context.run("write", () => writeInvoice(number, items));
    }),
  );

  /**
   * Takes an order through to its delivery. Each step runs once and its result is kept: if this process
   * crashes or restarts, or if a step fails and is retried, earlier steps are not run again.
   */
  const order = createWorkflow(
    wrap(async (context: WorkflowContext<Order>) => {
      const { id, items, carrier } = context.requestPayload;

      await context.run("check", () => {
        if (items.length === 0) throw new WorkflowNonRetryableError(`order ${id} has nothing in it`);
      });

      // While the run sleeps, nothing runs: neither here nor in the server.
      await context.sleep("time to change one's mind", 2);

      // Both steps run at the same time.
      const [paid, place] = await Promise.all([
        context.run("charge", () => charge(id, items)),
        context.run("reserve", () => reserve(items)),
      ]);

      // The server sends this request to the third party and retries it. This process does not wait for the
      // response.
      const label = await context.call<{ tracking: string }>("print label", {
        url: `${carrier}/labels`,
        method: "POST",
        body: JSON.stringify({ order: id, place }),
        retries: 3,
      });
      await context.run("tell the warehouse", () => notifyWarehouse(id, label.body.tracking));

      // Waits for POST /v2/notify/shipped-<id>, for at most one day.
      const { eventData, timeout } = await context.waitForEvent<{ at: string }>("shipped", `shipped-${id}`, {
        timeout: "1d",
      });
      if (timeout) return { id, state: "lost" };

      const { body: bill } = await context.invoke("invoice", {
        workflow: invoice,
        body: context.requestPayload,
      });
      return { id, state: "shipped", at: eventData?.at, paid, bill };
    }),
    {
      // Called once when a step has failed for good. The run is then in the dead-letter queue and can be
      // resumed.
      failureFunction: async ({ context, failResponse }) => {
        console.log(`order ${context.requestPayload.id} failed: ${failResponse}`);
        return "the customer was notified";
      },
    },
  );

  return { order, invoice };
}
