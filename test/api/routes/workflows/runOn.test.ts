import { expect, test } from "vitest";
import { limits } from "../../../../src/engine/core/values/limits.ts";
import type { TestServer } from "../../testServer.ts";
import { createTestServer, otherToken } from "../../testServer.ts";
import { modernFeatures, endpoint, start } from "./workflow.ts";

// The short form: a step is stored if its endpoint may continue in the same call, and otherwise nothing.

const makeStep = (stepId: number, more: object = {}): string =>
  JSON.stringify({ stepId, stepName: `s${stepId}`, stepType: "Run", concurrent: 1, out: "1", ...more });

/** Starts a run whose first call is being made. Returns functions that post steps in this call. */
async function startCall(more: Parameters<typeof start>[2] = {}) {
  const server = await createTestServer();
  const messageId = await start(server, "wfr_1", more);
  server.clock.now += 1;
  const call = `${messageId}.0.c1`;
  const post = (
    body: string,
    { path = `wfr_1/run-on/${call}`, token }: { path?: string; token?: string } = {},
  ) => server.ask("POST", `/v2/workflows/runs/${path}`, { body, ...(token === undefined ? {} : { token }) });
  return { server, messageId, call, post };
}

/** Posts a step to /v2/batch, as a client does for the first step of a call. */
const postInBatch = (server: TestServer, call: string, stepId: number) =>
  server.ask("POST", "/v2/batch", {
    body: JSON.stringify([
      {
        destination: endpoint,
        headers: {
          "Upstash-Workflow-RunId": "wfr_1",
          "Upstash-Workflow-Init": "false",
          "Upstash-Workflow-Run-On": call,
        },
        body: makeStep(stepId),
      },
    ]),
  });

const countSteps = ({ memory }: TestServer): number => memory.tables.steps.size;

test("a step is stored, and the endpoint continues", async () => {
  const { server, messageId, call, post } = await startCall();
  expect((await postInBatch(server, call, 1)).body).toEqual([{ messageId, runOn: true }]);
  for (const stepId of [2, 3])
    expect(await post(makeStep(stepId))).toMatchObject({ status: 200, body: { runOn: true } });
  // A response was lost, and the client posts the step again.
  expect((await post(makeStep(3))).body).toEqual({ runOn: true });
  expect(countSteps(server)).toBe(4);
  expect(server.memory.tables.storedMessages.size).toBe(1);
  const history = await server.ask("GET", "/v2/workflows/runs/wfr_1");
  const steps = (history.body as { body: string }[]).map(({ body }) =>
    Buffer.from(body, "base64").toString(),
  );
  expect(steps).toEqual(["payload", makeStep(1), makeStep(2), makeStep(3)]);
});

test.each<[string, string, { path?: string; token?: string }]>([
  ["another attempt", makeStep(1), { path: "wfr_1/run-on/ID.1.c1" }],
  ["another message", makeStep(1), { path: "wfr_1/run-on/msg_other.0.c1" }],
  ["another run", makeStep(1), { path: "wfr_2/run-on/ID.0.c1" }],
  ["the run of another account", makeStep(1), { token: otherToken }],
  ["a step that is not the next one", makeStep(2), {}],
  ["a plan", makeStep(0, { targetStep: 1, concurrent: 2 }), {}],
  ["a parallel step", makeStep(1, { concurrent: 2 }), {}],
  ["a wait", makeStep(1, { stepType: "Wait" }), {}],
])("nothing is stored for %s", async (_, body, options) => {
  const { server, messageId, post } = await startCall();
  const path = options.path?.replace("ID", messageId);
  expect(await post(body, { ...options, ...(path === undefined ? {} : { path }) })).toMatchObject({
    status: 200,
    body: { runOn: false },
  });
  expect(countSteps(server)).toBe(1);
});

test("only one call of an attempt continues", async () => {
  const { server, messageId, post } = await startCall();
  expect((await post(makeStep(1))).body).toEqual({ runOn: true });
  expect((await post(makeStep(2), { path: `wfr_1/run-on/${messageId}.0.c2` })).body).toEqual({
    runOn: false,
  });
  expect(countSteps(server)).toBe(2);
});

test("nothing is stored for a client that gives settings with each step", async () => {
  const features = { ...modernFeatures, captured: false };
  const { server, post } = await startCall({
    post: { kind: "start", runId: "wfr_1", url: endpoint, features, origin: "sdk", invoker: null },
  });
  expect((await post(makeStep(1))).body).toEqual({ runOn: false });
  expect(countSteps(server)).toBe(1);
});

test("a token for other destinations stores nothing", async () => {
  const { server, post } = await startCall();
  const { body } = await server.ask("POST", "/v2/tokens", {
    body: JSON.stringify({ verbs: ["publish"], destinations: ["https://other.example/*"] }),
  });
  expect((await post(makeStep(1), { token: body.token })).status).toBe(403);
  expect(countSteps(server)).toBe(1);
});

test.each([
  ["{", /^body: /],
  ["[]", /^body: is not a step of a run/],
  ["null", /^body: is not a step of a run/],
  [JSON.stringify({ stepId: -1, stepName: "s", stepType: "Run" }), /^body: is not a step of a run/],
])("a body that is not a step is refused: %s", async (body, error) => {
  const { server, post } = await startCall();
  expect(await post(body)).toMatchObject({ status: 400, body: { error: expect.stringMatching(error) } });
  expect(countSteps(server)).toBe(1);
});

test("a body above the limit of a message is refused", async () => {
  const { server, post } = await startCall();
  const reply = await post(makeStep(1, { out: "x".repeat(limits.messageBytes) }));
  expect(reply.status).toBe(413);
  expect(countSteps(server)).toBe(1);
});

test.each(["x", "msg_1.0", "msg_1.a.c", "msg_1.0.c/d", `msg_1.0.${"c".repeat(65)}`])(
  "a path that names no call is refused: %s",
  async (call) => {
    const { post } = await startCall();
    const reply = await post(makeStep(1), { path: `wfr_1/run-on/${encodeURIComponent(call)}` });
    expect(reply).toMatchObject({ status: 400, body: { error: expect.stringMatching(/^call: must be/) } });
  },
);
