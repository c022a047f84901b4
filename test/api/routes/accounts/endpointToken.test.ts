import { expect, test } from "vitest";
import { makeReadOnlyToken } from "../../../../src/api/auth/token.ts";
import type { TestServer } from "../../testServer.ts";
import { createTestServer, token as mainToken } from "../../testServer.ts";
import { endpoint } from "../workflows/workflow.ts";
import { sendBatch, startHeaders, step, stepHeaders } from "../workflows/workflowPosts.ts";

const path = "/v2/workflows/runs/wfr_1";

async function tokenWith(
  { ask }: TestServer,
  rights: { verbs: string[]; destinations?: string[] },
): Promise<string> {
  const { status, body } = await ask("POST", "/v2/tokens", { body: JSON.stringify(rights) });
  expect({ status, body }).toMatchObject({ status: 201 });
  return body.token;
}

/** Starts a run of the account. */
async function started(): Promise<TestServer> {
  const server = await createTestServer();
  expect((await sendBatch(server, [{ headers: startHeaders("wfr_1"), body: "payload" }])).status).toBe(200);
  return server;
}

const isGoing = async ({ store }: TestServer): Promise<boolean> =>
  (await store.read.activeRun("acc_1", "wfr_1")) !== null;

test.each([
  ["no destinations", []],
  ["its own URL as destination", [endpoint]],
])(
  "an endpoint can post steps and finish its run with a publish-and-read token, with %s",
  async (_, destinations) => {
    const server = await started();
    const token = await tokenWith(server, { verbs: ["publish", "read"], destinations });
    expect(await sendBatch(server, [{ headers: stepHeaders("wfr_1"), body: step() }], token)).toMatchObject({
      status: 200,
    });
    expect((await server.ask("GET", path, { token })).body).toHaveLength(2);
    expect(await server.ask("DELETE", `${path}?cancel=false`, { token, body: "done" })).toMatchObject({
      status: 200,
      body: { finished: true },
    });
    expect(await isGoing(server)).toBe(false);
  },
);

test("a token for other destinations finishes no run and does not learn which runs exist", async () => {
  const server = await started();
  const token = await tokenWith(server, {
    verbs: ["publish", "read"],
    destinations: ["https://other.example/*"],
  });
  expect(await server.ask("DELETE", `${path}?cancel=false`, { token, body: "done" })).toMatchObject({
    status: 403,
    body: {
      error: expect.stringMatching(/^token: not valid for the run [^ ]+; it may publish only to/),
    },
  });
  expect(await isGoing(server)).toBe(true);
});

test("finishing a run needs the verb publish, and cancelling it the verb manage", async () => {
  const server = await started();
  const publishing = await tokenWith(server, { verbs: ["publish"] });
  const managing = await tokenWith(server, { verbs: ["manage"] });
  const reading = [
    await tokenWith(server, { verbs: ["read"] }),
    makeReadOnlyToken({ id: "acc_1", token: mainToken }),
  ];
  for (const token of [...reading, managing])
    expect((await server.ask("DELETE", `${path}?cancel=false`, { token })).status).toBe(403);
  for (const token of [...reading, publishing]) {
    for (const query of ["", "?cancel=true"])
      expect((await server.ask("DELETE", `${path}${query}`, { token })).status).toBe(403);
  }
  expect(await isGoing(server)).toBe(true);
  expect(await server.ask("DELETE", path, { token: managing })).toMatchObject({
    status: 200,
    body: { cancelled: 1 },
  });
});
