import type { Letter, RunFeatures } from "../../../../src/core/model/message.ts";
import type { PublishResult } from "../../../../src/core/commands/publish.ts";
import { bytes, letterOf } from "../../../core/broker.ts";
import type { House } from "../../house.ts";

export const endpoint = "https://app.example/order";
export const modern: RunFeatures = { lazyFetch: true, initialBody: true, detect: true, captured: true };
export const answersAsWorkflow = { status: 200, headers: [["Upstash-Workflow-Sdk-Version", "1"]] as const, body: bytes("{}") };

/** Starts a run as a client does. Answers the id of its first message. */
export async function start(home: House, runId: string, more: Partial<Letter> & { as?: string } = {}): Promise<string> {
  const { as = "acc_1", ...letter } = more;
  const url = letter.url ?? endpoint;
  return post(
    home,
    letterOf({
      ...{ url, body: bytes("payload"), headers: [["Upstash-Workflow-Sdk-Version", "1"]], brand: "upstash" },
      post: { kind: "start", runId, url, features: modern, origin: "sdk", invoker: null },
      ...letter,
    }),
    as,
  );
}

/** Posts a step for a run. */
export async function step(home: House, runId: string, head: Record<string, unknown>, more: Partial<Letter> = {}): Promise<string> {
  const whole = { stepName: "s", stepType: "Run", concurrent: 1, stepId: 1, ...head };
  return post(home, letterOf({ url: endpoint, body: bytes(JSON.stringify(whole)), post: { kind: "step", runId, head: whole }, ...more }));
}

/** Posts any letter. Answers its message. */
export async function post(home: House, letter: Letter, as = "acc_1"): Promise<string> {
  const results: PublishResult[] = await home.store.execute("publish", { account: as, letters: [letter] });
  const [result] = results;
  if (result && "messageId" in result) return result.messageId;
  throw new Error(JSON.stringify(result));
}

/** What the deliveries since the last call carry: their histories, decoded. */
export const histories = (home: House): string[][] =>
  home.deliveries
    .splice(0)
    .map(({ message }) =>
      (JSON.parse(Buffer.from(message.body).toString()) as { body: string }[]).map(({ body }) => Buffer.from(body, "base64").toString()),
    );
