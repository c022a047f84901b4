import { describe, expect, test } from "vitest";
import type { Delivery } from "../../../../src/engine/core/model/delivery.ts";
import { bytes, callbackTo, endpoint, failRunAndRead } from "../lists/failedRunLists.ts";
import { createTestServer } from "../../testServer.ts";
import type { TestServer, Reply } from "../../testServer.ts";

const entries = async ({ ask }: TestServer): Promise<number> =>
  (await ask("GET", "/v2/workflows/dlq")).body.messages.length;
const nonRetryable = { status: 489, headers: [["Upstash-Nonretryable-Error", "true"]] } as const;

/** Returns the deliveries since the last call, and forgets them. */
const sent = ({ deliveries }: TestServer): Delivery[] => deliveries.splice(0);

describe("a failure callback", () => {
  const withCallback = { failureCallback: callbackTo("https://app.example/failed") };
  const stateOf = async ({ ask }: TestServer, dlqId: string) =>
    (await ask("GET", `/v2/workflows/dlq/${dlqId}`)).body.failureFunctionState;
  const callback = (server: TestServer, method: string, dlqId: string): Promise<Reply> =>
    server.ask(method, `/v2/workflows/dlq/callback/${dlqId}`);

  test("that has failed can be called again each time", async () => {
    const server = await createTestServer();
    const dlqId = await failRunAndRead(server, "wfr_1", withCallback);
    const createdAt = server.clock.now;
    expect(await callback(server, "POST", dlqId)).toMatchObject({
      status: 400,
      body: { error: expect.stringContaining("CALLBACK_INPROGRESS") },
    });
    for (let round = 0; round < 2; round++) {
      const [delivery] = sent(server);
      expect(JSON.parse(new TextDecoder().decode(delivery?.message.body))).toMatchObject({
        workflowRunId: "wfr_1",
        dlqId,
        status: 500,
        sourceBody: btoa("payload"),
      });
      if (delivery) await server.settle(delivery, { ...nonRetryable });
      expect(await stateOf(server, dlqId)).toBe("CALLBACK_FAIL");
      expect(await callback(server, "POST", dlqId)).toMatchObject({
        status: 200,
        body: { workflowRunId: "wfr_1", workflowCreatedAt: createdAt },
      });
      expect(await stateOf(server, dlqId)).toBe("CALLBACK_INPROGRESS");
    }
    const [delivery] = sent(server);
    if (delivery) await server.settle(delivery, { status: 200, body: bytes("ok") });
    expect(await stateOf(server, dlqId)).toBe("CALLBACK_SUCCESS");
    expect(await callback(server, "POST", dlqId)).toMatchObject({
      status: 400,
      body: { error: expect.stringContaining("CALLBACK_SUCCESS") },
    });
    expect(await callback(server, "DELETE", dlqId)).toMatchObject({ status: 400 });
    expect(await entries(server)).toBe(1);
  });

  test("that is in progress can be cancelled, once", async () => {
    const server = await createTestServer();
    const dlqId = await failRunAndRead(server, "wfr_1", withCallback);
    const [delivery] = sent(server);
    expect(await callback(server, "DELETE", dlqId)).toMatchObject({
      status: 200,
      body: { workflowRunId: "wfr_1" },
    });
    expect(await stateOf(server, dlqId)).toBe("CALLBACK_CANCELED");
    expect(await callback(server, "DELETE", dlqId)).toMatchObject({ status: 400 });
    if (delivery) await server.settle(delivery, { status: 200 });
    expect(await stateOf(server, dlqId)).toBe("CALLBACK_CANCELED");
    expect(await callback(server, "POST", dlqId)).toMatchObject({
      status: 400,
      body: { error: expect.stringContaining("CALLBACK_CANCELED") },
    });
  });

  test("that does not exist can neither be called nor cancelled", async () => {
    const server = await createTestServer();
    const dlqId = await failRunAndRead(server, "wfr_1", { url: endpoint });
    expect(await callback(server, "POST", dlqId)).toMatchObject({
      status: 400,
      body: { error: expect.stringContaining("does not exist") },
    });
    expect(await callback(server, "DELETE", dlqId)).toMatchObject({ status: 400 });
    for (const id of ["1800000000000-1", "x", "%00"]) {
      for (const method of ["POST", "DELETE"])
        expect(await callback(server, method, id)).toMatchObject({ status: 404 });
    }
  });
});
