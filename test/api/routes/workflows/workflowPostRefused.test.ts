import { describe, expect, test } from "vitest";
import { createTestServer } from "../../testServer.ts";
import { endpoint } from "./workflow.ts";
import type { Headers, Item } from "./workflowPosts.ts";
import { callHeaders, sendBatch, startHeaders, stepHeaders } from "./workflowPosts.ts";

describe("a post for a run is refused", () => {
  const lone = "\ud800";
  test.each<[what: string, item: Item, error: RegExp]>([
    ["an empty id", { headers: startHeaders("") }, /upstash-workflow-runid: "" is empty/],
    [
      "an id with a control character",
      { headers: startHeaders("a\u0007") },
      /upstash-workflow-runid: .* control characters/,
    ],
    ["an id with half a character", { headers: startHeaders(lone) }, /upstash-workflow-runid: /],
    [
      "an id that is too long",
      { headers: startHeaders("a".repeat(513)) },
      /upstash-workflow-runid: 513 characters, the limit is 512/,
    ],
    [
      "two ids",
      { headers: startHeaders("a", { "Upstash-Workflow-RunId": "b" }) },
      /with a different value; remove one$/,
    ],
    ["no Init", { headers: { "upstash-workflow-runid": "a" } }, /runid: requires Workflow-Init; /],
    [
      "an invalid Init",
      { headers: startHeaders("a", { "upstash-workflow-init": "1" }) },
      /upstash-workflow-init: "1" is neither/,
    ],
    [
      "an invalid URL",
      { headers: startHeaders("a", { "upstash-workflow-url": "app" }) },
      /upstash-workflow-url: "app"/,
    ],
    [
      "an unknown call type",
      { headers: startHeaders("a", { "upstash-workflow-calltype": "x" }) },
      /upstash-workflow-calltype: "x" must be one of step, /,
    ],
    [
      "an empty SDK version",
      { headers: startHeaders("a", { "upstash-workflow-sdk-version": "" }) },
      /upstash-workflow-sdk-version: /,
    ],
    [
      "a feature set that is too long",
      { headers: startHeaders("a", { "upstash-feature-set": "x".repeat(1_025) }) },
      /upstash-feature-set: /,
    ],
    ["a queue", { headers: startHeaders("a"), queue: "q" }, /queue: a workflow run cannot use a queue/],
    [
      "a callback",
      { headers: startHeaders("a", { "upstash-callback": endpoint }) },
      /callback: not valid for a message that starts a workflow run/,
    ],
    [
      "a callback of a step",
      { headers: stepHeaders("a", { "upstash-callback": endpoint }) },
      /callback: not valid for a step of a workflow run/,
    ],
    [
      "a deduplication id",
      { headers: startHeaders("a", { "upstash-deduplication-id": "x" }) },
      /upstash-deduplication-id: not valid for a workflow run/,
    ],
    [
      "deduplication by content",
      { headers: startHeaders("a", { "upstash-content-based-deduplication": "true" }) },
      /upstash-content-based-deduplication: /,
    ],
    [
      "a call that starts a run",
      { headers: startHeaders("a", { "upstash-workflow-calltype": "toCallback" }) },
      /a request to a third party cannot start a run/,
    ],
    [
      "a call without a callback",
      { headers: stepHeaders("a", { "upstash-workflow-calltype": "toCallback" }) },
      /callback: missing/,
    ],
    [
      "a step that invokes a run",
      { headers: stepHeaders("a", { "upstash-workflow-invoke": "true" }) },
      /upstash-workflow-invoke: /,
    ],
    [
      "a step that starts the run again",
      { headers: stepHeaders("a", { "upstash-workflow-trigger-by-sdk": "true" }) },
      /trigger-by-sdk: /,
    ],
    [
      "Unknown-Sdk, which only triggers may have",
      { headers: startHeaders("a", { "upstash-workflow-unknown-sdk": "true" }) },
      /only valid for POST \/v2\/trigger/,
    ],
    [
      "another run in the callback",
      { headers: callHeaders("a", { "upstash-callback-workflow-runid": "b" }) },
      /differs from the run of the message/,
    ],
    [
      "an invocation by a callback",
      { headers: callHeaders("a", { "upstash-callback-workflow-invoke": "true" }) },
      /invoke: not valid for callbacks/,
    ],
    [
      "a schedule",
      { headers: startHeaders("a", { "upstash-cron": "* * * * *" }) },
      /only valid for schedules/,
    ],
    [
      "a header with a NUL character",
      { headers: startHeaders("a", { "upstash-forward-x": "a\u0000" }) },
      /upstash-forward-x: /,
    ],
  ])("with %s", async (_, item, error) => {
    const server = await createTestServer();
    // With 400, the client of an active run would conclude that the run has ended.
    const status = item.headers?.["upstash-workflow-init"] === "false" ? 412 : 400;
    expect(await sendBatch(server, [item])).toMatchObject({
      status,
      body: { error: expect.stringMatching(error) },
    });
    expect(server.deliveries).toEqual([]);
  });

  test.each<[what: string, path: string, more: Headers]>([
    ["a queue", `/v2/enqueue/q/${endpoint}`, {}],
    ["a schedule", `/v2/schedules/${endpoint}`, { "upstash-cron": "* * * * *" }],
  ])("by %s", async (_, path, more) => {
    const server = await createTestServer();
    const reply = await server.ask("POST", path, { headers: startHeaders("a", more), body: "x" });
    expect(reply).toMatchObject({ status: 400, body: { error: expect.stringMatching(/run/) } });
    expect(server.deliveries).toEqual([]);
  });

  test("to a URL group, or in settings that apply to later messages", async () => {
    const server = await createTestServer();
    const body = JSON.stringify({ endpoints: [{ url: "https://e.example" }] });
    await server.ask("POST", "/v2/topics/g/endpoints", { body });
    expect(await sendBatch(server, [{ destination: "g", headers: startHeaders("a") }])).toMatchObject({
      status: 400,
      body: {
        error: expect.stringMatching(/destination: a workflow run cannot use a URL group/),
      },
    });
    const settings = JSON.stringify({ headers: { "Svc-Workflow-RunId": "a", "Svc-Workflow-Init": "true" } });
    expect(await server.ask("PATCH", "/v2/topics/g", { body: settings })).toMatchObject({
      status: 400,
      body: { error: expect.stringMatching(/only valid for messages of a workflow run/) },
    });
    const source = {
      name: "s",
      destination: endpoint,
      headers: { "Svc-Workflow-RunId": "a", "Svc-Workflow-Init": "true" },
    };
    expect((await server.ask("POST", "/v2/sources", { body: JSON.stringify(source) })).status).toBe(400);
  });
});
