import { beforeEach, describe, expect, test } from "vitest";
import { makeReadOnlyToken } from "../../../../src/api/auth/token.ts";
import { createTestServer, token } from "../../testServer.ts";
import type { TestServer } from "../../testServer.ts";
import { formatBasic } from "./possessions.ts";
import { endpoint } from "../workflows/workflow.ts";
import {
  sendBatch,
  callHeaders,
  startHeaders,
  start,
  step,
  stepHeaders,
} from "../workflows/workflowPosts.ts";

let server: TestServer;
beforeEach(async () => {
  server = await createTestServer();
  await start(server, "wfr_1");
  server.deliveries.splice(0);
  await server.store.execute("changeAccount", { account: "acc_1", change: { state: "passive" } });
});

const disabled = { status: 403, body: { error: expect.stringContaining("waypost account enable acc_1") } };
const post = (runId: string) => sendBatch(server, [{ headers: stepHeaders(runId), body: step() }]);
const waiting = { stepId: 2, stepName: "w", stepType: "Wait", concurrent: 1 };

describe("a disabled account", () => {
  test("can continue its runs to the end: steps, calls, waits, events and the result", async () => {
    expect(await post("wfr_1")).toMatchObject({ status: 200 });
    expect(server.deliveries.map(({ message }) => message.run?.runId)).toEqual(["wfr_1"]);
    const wait = { url: endpoint, timeout: "1d", step: waiting };
    const headers = { "upstash-workflow-runid": "wfr_1" };
    expect(await server.ask("POST", "/v2/wait/paid", { headers, body: JSON.stringify(wait) })).toMatchObject({
      status: 200,
    });
    expect(await server.ask("POST", "/v2/notify/paid", { body: "yes" })).toMatchObject({
      status: 200,
      body: [{ workflowRunId: "wfr_1" }],
    });
    const done = await server.ask("DELETE", "/v2/workflows/runs/wfr_1?cancel=false", { body: "done" });
    expect(done).toMatchObject({ status: 200, body: { finished: true } });
  });

  test("cannot start runs or publish anything but steps", async () => {
    expect(await start(server, "wfr_2")).toMatchObject(disabled);
    expect(await server.ask("POST", "/v2/publish/https://e.example/", { body: "x" })).toMatchObject(disabled);
    const items = [
      { destination: endpoint, headers: stepHeaders("wfr_1"), body: step() },
      { destination: "https://e.example/", body: "x" },
    ];
    expect(await server.ask("POST", "/v2/batch", { body: JSON.stringify(items) })).toMatchObject(disabled);
    expect(server.deliveries).toEqual([]);
  });

  test("cannot start a run by a step of an unknown run or by starting a run again", async () => {
    expect((await post("wfr_none")).status).toBe(400);
    const again = {
      ...startHeaders("wfr_none"),
      "upstash-workflow-sdk-version": "1",
      "svc-workflow-trigger-by-sdk": "true",
    };
    const items = [{ destination: endpoint, headers: again, body: "x" }];
    expect(await server.ask("POST", "/v2/batch", { body: JSON.stringify(items) })).toMatchObject(disabled);
    const call = [{ destination: "https://third.example/", headers: callHeaders("wfr_none"), body: "x" }];
    expect((await server.ask("POST", "/v2/batch", { body: JSON.stringify(call) })).status).toBe(400);
    expect(server.deliveries).toEqual([]);
  });

  test("can replace its own tokens and revoke the others", async () => {
    await server.store.execute("changeAccount", { account: "acc_1", change: { state: "active" } });
    const made = await server.ask("POST", "/v2/tokens", { body: '{"verbs":["read"]}' });
    await server.store.execute("changeAccount", { account: "acc_1", change: { state: "passive" } });
    const readWith = async (one: string) => (await server.ask("GET", "/v2/queues", { token: one })).status;
    expect([await readWith(made.body.token), await readWith(token)]).toEqual([200, 200]);
    expect(await server.ask("DELETE", `/v2/tokens/${made.body.tokenId}`)).toMatchObject({
      status: 200,
      body: { revoked: 1 },
    });
    const headers = { authorization: formatBasic("acc_1", "pass") };
    const rotated = await server.ask("POST", "/v2/svc/rotate-token/acc_1", { token: null, headers });
    expect(rotated).toMatchObject({ status: 200, body: { state: "passive", active: false } });
    expect([
      await readWith(made.body.token),
      await readWith(token),
      await readWith(rotated.body.token),
    ]).toEqual([401, 401, 200]);
    const entries = (await server.ask("GET", "/v2/audit?count=2", { token: rotated.body.token })).body
      .entries;
    expect(entries.map(({ action }: { action: string }) => action)).toEqual(["token.rotate", "token.revoke"]);
  });

  test("cannot create tokens or rotate signing keys", async () => {
    expect(await server.ask("POST", "/v2/tokens", { body: '{"verbs":["read"]}' })).toMatchObject(disabled);
    expect(await server.ask("POST", "/v2/keys/rotate")).toMatchObject(disabled);
  });

  test("cannot revoke tokens with a read-only token", async () => {
    const readOnly = makeReadOnlyToken({ id: "acc_1", token });
    expect(
      (await server.ask("DELETE", "/v2/tokens/tok_1pHQqVwd111112XZteR2", { token: readOnly })).status,
    ).toBe(403);
  });

  test("cannot cancel anything", async () => {
    expect(await server.ask("DELETE", "/v2/workflows/runs/wfr_1")).toMatchObject(disabled);
  });
});
