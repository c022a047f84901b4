import { randomUUID } from "node:crypto";
import { serveMany } from "@upstash/workflow/hono";
import { Hono } from "hono";
import { afterAll, beforeAll, expect, test, vi } from "vitest";
import { createWorkflows } from "../../examples/orders/workflows.ts";
import { runOn } from "../../launch/workflow.js";
import { eventually } from "./clientTestServer.ts";
import type { WorkflowTestServer } from "./workflowTestServer.ts";
import { startWorkflowTestServer, waitForCount, waitForResult } from "./workflowTestServer.ts";

// The example with the shop, in both ways.

let house: WorkflowTestServer;
beforeAll(async () => {
  vi.spyOn(console, "log").mockReturnValue(undefined);
  house = await startWorkflowTestServer("SQLite");
});
afterAll(async () => {
  vi.restoreAllMocks();
  await house.close();
});

const item = { name: "lamp", price: 30 };

test.concurrent.each([
  ["each step has its own call", createWorkflows(), { order: 12, invoice: 3 }],
  ["several steps in one call", createWorkflows(runOn), { order: 10, invoice: 1 }],
] as const)("an order is delivered: %s", async (_, workflows, counts) => {
  const user = house.createUser();
  const app = new Hono();
  const folder = `/${randomUUID()}`;
  const given = { qstashClient: user.client, receiver: user.receiver, env: {} };
  app.post(`${folder}/:name`, serveMany(workflows, given));
  const [order, invoice] = [`${folder}/order`, `${folder}/invoice`].map((path) => user.at(path, app.fetch));
  const carrier = user.at(`${folder}/labels`, () => Response.json({ tracking: "1Z-0001" }));
  if (!order || !invoice) throw new Error("no workflows");
  const id = randomUUID();
  const payload = { id, items: [item, item], carrier: carrier.url.replace("/labels", "") };
  const run = await user.workflows.trigger({ url: order.url, body: payload });
  const eventData = { at: "noon" };
  await eventually(
    () => user.workflows.notify({ eventId: `shipped-${id}`, eventData }),
    ({ length }) => length > 0,
  );
  expect(await waitForResult(user, run)).toEqual({
    ...{ id, state: "shipped", at: "noon" },
    paid: { amount: 60, receipt: `receipt-${id}` },
    bill: { number: `INV-${id}`, total: 60 },
  });
  expect(await waitForCount(order, counts.order)).toBe(counts.order);
  expect(await waitForCount(invoice, counts.invoice)).toBe(counts.invoice);
  expect(carrier.calls).toHaveLength(1);
});
