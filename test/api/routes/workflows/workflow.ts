import type { MessageInput } from "../../../../src/engine/core/model/message.ts";
import type { RunFeatures } from "../../../../src/engine/core/model/runPost.ts";
import type { PublishResult } from "../../../../src/engine/core/commands/publish.ts";
import { bytes, makeInput } from "../../../engine/core/commandRunner.ts";
import type { TestServer } from "../../testServer.ts";

/** The URL of the workflow that the runs belong to. */
export const endpoint = "https://app.example/order";
/** The features of current clients. */
export const modernFeatures: RunFeatures = {
  lazyFetch: true,
  initialBody: true,
  detect: true,
  captured: true,
};
/** The response of a workflow endpoint. */
export const workflowResponse = {
  status: 200,
  headers: [["Upstash-Workflow-Sdk-Version", "1"]] as const,
  body: bytes("{}"),
};

/** Starts a run as a client does. Returns the id of its first message. */
export async function start(
  testServer: TestServer,
  runId: string,
  more: Partial<MessageInput> & { as?: string } = {},
): Promise<string> {
  const { as = "acc_1", ...input } = more;
  const url = input.url ?? endpoint;
  return post(
    testServer,
    makeInput({
      url,
      body: bytes("payload"),
      headers: [["Upstash-Workflow-Sdk-Version", "1"]],
      brand: "upstash",
      post: { kind: "start", runId, url, features: modernFeatures, origin: "sdk", invoker: null },
      ...input,
    }),
    as,
  );
}

/** Posts a step for a run. `message` changes the message that carries the step. */
export async function step(
  testServer: TestServer,
  runId: string,
  { message = {}, ...head }: Record<string, unknown> & { message?: Partial<MessageInput> },
): Promise<string> {
  const whole = { stepName: "s", stepType: "Run", concurrent: 1, stepId: 1, ...head };
  return post(
    testServer,
    makeInput({
      url: endpoint,
      body: bytes(JSON.stringify(whole)),
      post: { kind: "step", runId, head: whole },
      ...message,
    }),
  );
}

/** Publishes a message. Returns its id. */
export async function post(testServer: TestServer, input: MessageInput, as = "acc_1"): Promise<string> {
  const results: PublishResult[] = await testServer.store.execute("publish", {
    account: as,
    inputs: [input],
  });
  const [result] = results;
  if (result && "messageId" in result) return result.messageId;
  throw new Error(JSON.stringify(result));
}

/** Returns the decoded histories in the deliveries since the last call, and forgets these deliveries. */
export const takeHistories = (testServer: TestServer): string[][] =>
  testServer.deliveries
    .splice(0)
    .map(({ message }) =>
      (JSON.parse(Buffer.from(message.body).toString()) as { body: string }[]).map(({ body }) =>
        Buffer.from(body, "base64").toString(),
      ),
    );
