import { randomUUID } from "node:crypto";
import { Receiver } from "@upstash/qstash";
import { Hono } from "hono";
import { expect, test } from "vitest";
import { Client } from "workflow-0.2";
import { serve } from "workflow-0.2/hono";
import { developmentAccounts } from "../../../src/settings/credentials.ts";
import { startWaypost } from "../../server/waypost.ts";
import { shareWorkflowServer, waitForEnd, waitForResult } from "../workflowTestServer.ts";

// The calls that Basestack makes with @upstash/workflow 0.2: one run for each job, served by Hono.

const house = shareWorkflowServer();

type Job = { formId: string; email: string };

test("a job is a run of a route of Hono, which verifies with its own receiver", async () => {
  const account = developmentAccounts[0];
  const server = await startWaypost(["dev", "--port", "0"]);
  const user = house.createUser();
  const keys = account?.signingKeys ?? { current: "", next: "" };
  const receiver = new Receiver({ currentSigningKey: keys.current, nextSigningKey: keys.next });
  const token = account?.token ?? "";
  const path = `/api/v1/jobs/${randomUUID()}`;
  const sent: Job[] = [];
  const failed: unknown[] = [];
  const app = new Hono();
  const route = serve<Job>(
    async (context) => {
      const job = await context.run("find", () => context.requestPayload);
      await context.sleep("wait", 1);
      await context.run("send-email", () => {
        if (job.formId === "none") throw new Error("the form was deleted");
        sent.push(job);
      });
      return `sent to ${job.email}`;
    },
    {
      receiver,
      retries: 0,
      failureFunction: ({ context, failResponse }) =>
        void failed.push([context.requestPayload.formId, failResponse]),
    },
  );
  app.post(path, route as never);
  const environment = { QSTASH_URL: server.url, QSTASH_TOKEN: token, UPSTASH_WORKFLOW_URL: "" };
  const place = user.at(path, async (request) => app.fetch(request, environment));
  // The application sees another address of itself than the server calls, as behind a proxy.
  environment.UPSTASH_WORKFLOW_URL = new URL(place.url).origin;
  const client = new Client({ baseUrl: server.url, token });
  const workflows = { workflows: client as never };

  const run = await client.trigger({ url: place.url, body: { formId: "f1", email: "a@example.com" } });
  expect(await waitForResult(workflows, run)).toBe("sent to a@example.com");
  expect(sent).toEqual([{ formId: "f1", email: "a@example.com" }]);

  const other = await client.trigger({ url: place.url, body: { formId: "none", email: "" }, retries: 0 });
  expect(await waitForEnd(workflows, other)).toMatchObject({ workflowState: "RUN_FAILED" });
  await expect.poll(() => failed).toEqual([["none", "the form was deleted"]]);

  const forged = await fetch(place.url, {
    method: "POST",
    body: "{}",
    headers: { "upstash-signature": "a.b.c" },
  });
  expect(forged.status).toBeGreaterThanOrEqual(400);
  expect(sent).toHaveLength(1);
});
