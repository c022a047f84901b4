import type { Delivery } from "../../../../src/engine/core/model/delivery.ts";
import type { MessageInput } from "../../../../src/engine/core/model/message.ts";
import type { Outcome } from "../../../../src/engine/core/model/attempt.ts";
import type { RunFeatures, StepHead } from "../../../../src/engine/core/model/runPost.ts";
import { bytes, callbackTo, makeInput } from "../../../engine/core/commandRunner.ts";
import type { TestServer } from "../../testServer.ts";

/** The URL of the workflow that the runs belong to. */
export const endpoint = "https://app.example/order";
const features: RunFeatures = { lazyFetch: true, initialBody: true, detect: true, captured: true };
/** The response of a workflow endpoint. */
export const workflowAnswer = {
  status: 200,
  headers: [
    ["Upstash-Workflow-Sdk-Version", "1"],
    ["Upstash-Workflow-Sdk", "v1.0.0"],
  ],
  body: bytes("{}"),
} as const;

type Given = Partial<MessageInput> & { account?: string };

async function post({ store }: TestServer, { account = "acc_1", ...input }: Given): Promise<string> {
  const [result] = await store.execute("publish", { account, inputs: [makeInput(input)] });
  if (result && "messageId" in result) return result.messageId;
  throw new Error(JSON.stringify(result));
}

/** Starts a run. Its first message is due. Returns the id of that message. */
export const start = (testServer: TestServer, runId: string, more: Given = {}): Promise<string> => {
  const url = more.url ?? endpoint;
  const headers = [["Upstash-Workflow-Sdk-Version", "1"]] as const;
  const run = { kind: "start", runId, url, features, origin: "sdk", invoker: null } as const;
  return post(testServer, {
    url,
    headers,
    retries: 0,
    body: bytes("payload"),
    brand: "upstash",
    ...more,
    post: run,
  });
};

/**
 * Posts the result of a step, or with `targetStep` its plan, as the endpoint does. `message` changes the
 * message that carries it.
 */
export const step = (
  testServer: TestServer,
  runId: string,
  { message = {}, ...head }: Partial<StepHead> & { message?: Given },
): Promise<string> => {
  const whole = { stepName: "s", stepType: "Run", concurrent: 1, stepId: 1, ...head };
  return post(testServer, {
    url: endpoint,
    body: bytes(JSON.stringify(whole)),
    ...message,
    post: { kind: "step", runId, head: whole },
  });
};

/** Removes the delivery of a message from the list and returns it. */
export function takeDelivery({ deliveries }: TestServer, messageId: string): Delivery {
  const at = deliveries.findIndex(({ message }) => message.id === messageId);
  const [found] = at < 0 ? [] : deliveries.splice(at, 1);
  if (!found)
    throw new Error(
      `${messageId} is not being delivered; these are: ` +
        deliveries.map(({ message }) => message.id).join(", "),
    );
  return found;
}

type Failing = Given & { outcome?: Partial<Outcome> };

/** Creates a run that fails with its first message, and advances the clock by one second. */
export async function failRun(
  testServer: TestServer,
  runId: string,
  { outcome = {}, ...more }: Failing = {},
): Promise<void> {
  testServer.clock.now += 1_000;
  const first = await start(testServer, runId, more);
  await testServer.settle(takeDelivery(testServer, first), {
    status: 500,
    body: bytes('{"error":"Error","message":"boom"}'),
    ...outcome,
  });
}

/** Creates a failed run and returns the id of its entry. */
export async function failRunAndRead(
  testServer: TestServer,
  runId: string,
  more: Failing = {},
): Promise<string> {
  await failRun(testServer, runId, more);
  const { account = "acc_1" } = more;
  const { entries } = await testServer.store.read.deadLetters({
    account,
    filter: {},
    order: "latestFirst",
    cursor: null,
    count: 1,
    bodies: false,
  });
  return entries[0]?.deadLetter.id ?? "";
}

export { bytes, callbackTo };

/** Returns the decoded bodies of the history in a delivery. */
export const listHistoryBodies = ({ message }: Delivery): string[] =>
  (JSON.parse(new TextDecoder().decode(message.body)) as { body: string }[]).map(({ body }) => atob(body));
