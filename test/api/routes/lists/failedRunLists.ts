import type { Delivery, Letter, Outcome, RunFeatures, StepHead } from "../../../../src/core/model/message.ts";
import { bytes, callbackTo, letterOf } from "../../../core/broker.ts";
import type { House } from "../../house.ts";

export const endpoint = "https://app.example/order";
const features: RunFeatures = { lazyFetch: true, initialBody: true, detect: true, captured: true };
/** How the endpoint of a workflow answers. */
export const workflowAnswer = {
  status: 200,
  headers: [
    ["Upstash-Workflow-Sdk-Version", "1"],
    ["Upstash-Workflow-Sdk", "v1.0.0"],
  ],
  body: bytes("{}"),
} as const;

type Given = Partial<Letter> & { account?: string };

async function post({ store }: House, { account = "acc_1", ...letter }: Given): Promise<string> {
  const [result] = await store.execute("publish", { account, letters: [letterOf(letter)] });
  if (result && "messageId" in result) return result.messageId;
  throw new Error(JSON.stringify(result));
}

/** Starts a run whose first message is to be delivered. */
export const start = (home: House, runId: string, more: Given = {}): Promise<string> => {
  const url = more.url ?? endpoint;
  const headers = [["Upstash-Workflow-Sdk-Version", "1"]] as const;
  const run = { kind: "start", runId, url, features, origin: "sdk", invoker: null } as const;
  return post(home, { url, headers, retries: 0, body: bytes("payload"), brand: "upstash", ...more, post: run });
};

/** The endpoint posts the result of a step, or with `targetStep` its plan. */
export const step = (home: House, runId: string, head: Partial<StepHead>, more: Given = {}): Promise<string> => {
  const whole = { stepName: "s", stepType: "Run", concurrent: 1, stepId: 1, ...head };
  return post(home, { url: endpoint, body: bytes(JSON.stringify(whole)), ...more, post: { kind: "step", runId, head: whole } });
};

/** The delivery of a message, which is taken out of those that there are. */
export function deliveryOf({ deliveries }: House, messageId: string): Delivery {
  const at = deliveries.findIndex(({ message }) => message.id === messageId);
  const [found] = at < 0 ? [] : deliveries.splice(at, 1);
  if (!found) throw new Error(`${messageId} is not to be delivered; ${deliveries.map(({ message }) => message.id).join(", ")}`);
  return found;
}

type Failing = Given & { outcome?: Partial<Outcome> };

/** A run fails with its first message, a second after the one before. */
export async function fail(home: House, runId: string, { outcome = {}, ...more }: Failing = {}): Promise<void> {
  home.clock.now += 1_000;
  const first = await start(home, runId, more);
  await home.settle(deliveryOf(home, first), { status: 500, body: bytes('{"error":"Error","message":"boom"}'), ...outcome });
}

/** The same. Answers the id of its entry. */
export async function failed(home: House, runId: string, more: Failing = {}): Promise<string> {
  await fail(home, runId, more);
  const { account = "acc_1" } = more;
  const { entries } = await home.store.read.deadLetters({
    account,
    filter: {},
    order: "latestFirst",
    cursor: null,
    count: 1,
    bodies: false,
  });
  return entries[0]?.letter.id ?? "";
}

export { bytes, callbackTo };

/** The bodies of a history that is delivered. */
export const historyIn = ({ message }: Delivery): string[] =>
  (JSON.parse(new TextDecoder().decode(message.body)) as { body: string }[]).map(({ body }) => atob(body));
