import type { MessageInput, RunFeatures } from "../../../../src/core/model/message.ts";
import type { PublishResult } from "../../../../src/core/commands/publish.ts";
import { bytes, makeInput } from "../../../core/commandRunner.ts";
import type { TestServer } from "../../testServer.ts";

export const endpoint = "https://app.example/order";
export const modernFeatures: RunFeatures = { lazyFetch: true, initialBody: true, detect: true, captured: true };
export const workflowResponse = { status: 200, headers: [["Upstash-Workflow-Sdk-Version", "1"]] as const, body: bytes("{}") };

/** Starts a run as a client does. Answers the id of its first message. */
export async function start(testServer: TestServer, runId: string, more: Partial<MessageInput> & { as?: string } = {}): Promise<string> {
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

/** Posts a step for a run. */
export async function step(
  testServer: TestServer,
  runId: string,
  head: Record<string, unknown>,
  more: Partial<MessageInput> = {},
): Promise<string> {
  const whole = { stepName: "s", stepType: "Run", concurrent: 1, stepId: 1, ...head };
  return post(
    testServer,
    makeInput({ url: endpoint, body: bytes(JSON.stringify(whole)), post: { kind: "step", runId, head: whole }, ...more }),
  );
}

/** Posts any letter. Answers its message. */
export async function post(testServer: TestServer, input: MessageInput, as = "acc_1"): Promise<string> {
  const results: PublishResult[] = await testServer.store.execute("publish", { account: as, inputs: [input] });
  const [result] = results;
  if (result && "messageId" in result) return result.messageId;
  throw new Error(JSON.stringify(result));
}

/** What the deliveries since the last call carry: their histories, decoded. */
export const takeHistories = (testServer: TestServer): string[][] =>
  testServer.deliveries
    .splice(0)
    .map(({ message }) =>
      (JSON.parse(Buffer.from(message.body).toString()) as { body: string }[]).map(({ body }) => Buffer.from(body, "base64").toString()),
    );
