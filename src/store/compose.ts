import type { Bytes, Delivery } from "../core/message.ts";
import { noBytes } from "../core/message.ts";
import { historyBody, stepKey } from "../core/run.ts";
import type { SentStep } from "../core/run.ts";
import type { HistoryNeed, Loader } from "./loader.ts";
import type { BatchResult } from "./store.ts";

/**
 * The result of a batch that is written, with the bodies of deliveries that carry the history of a run: everything up
 * to the step that the message is for, and nothing after it (protocol 6.7).
 */
export async function composed(loader: Pick<Loader, "rows" | "histories">, result: BatchResult): Promise<BatchResult> {
  const carrying = result.deliveries.filter(isCarrying);
  if (carrying.length === 0) return result;
  const bodies = await bodiesOf(loader, carrying);
  return { ...result, deliveries: result.deliveries.map((delivery) => bodies.get(delivery) ?? delivery) };
}

type Carrying = Delivery & { message: { run: NonNullable<Delivery["message"]["run"]> } };

/** One of size 0 is fetched by the endpoint itself. */
const isCarrying = (delivery: Delivery): delivery is Carrying => {
  const { run } = delivery.message;
  return run !== undefined && run.size > 0 && (run.kind === "step" || run.kind === "result");
};

async function bodiesOf(loader: Pick<Loader, "rows" | "histories">, carrying: readonly Carrying[]): Promise<Map<Delivery, Delivery>> {
  const results = carrying.filter(({ message }) => message.run.kind === "result");
  const wholes = carrying.filter(({ message }) => message.run.kind === "step");
  const [single, histories] = await Promise.all([
    results.length === 0 ? [] : loader.rows("steps", results.map(keyOfStep)),
    wholes.length === 0 ? [] : readHistories(loader, wholes),
  ]);
  const byId = new Map(single.map((step) => [`${step.account} ${step.id}`, step]));
  const bodies = new Map<Delivery, Delivery>();
  for (const delivery of results) bodies.set(delivery, withBody(delivery, byId.get(keyOfStep(delivery).join(" "))?.body));
  wholes.forEach((delivery, at) => bodies.set(delivery, withBody(delivery, historyBody(histories[at] ?? []))));
  return bodies;
}

const keyOfStep = ({ message: { account, run } }: Carrying): [account: string, id: string] => [account, stepKey(run.run, run.slot)];

/** Branches of a run go out together: its history is read once, as far as the longest of their bodies goes. */
async function readHistories(loader: Pick<Loader, "histories">, wholes: readonly Carrying[]): Promise<SentStep[][]> {
  const needs = new Map<string, HistoryNeed>();
  for (const { message } of wholes) {
    const { account, run } = message;
    needs.set(nameOf(message), { account, run: run.run, upTo: Math.max(run.position, needs.get(nameOf(message))?.upTo ?? 0) });
  }
  const read = await loader.histories([...needs.values()]);
  const byRun = new Map([...needs.keys()].map((name, at) => [name, read[at] ?? []]));
  // A history has no gap, so that a place in it is a number of steps.
  return wholes.map(({ message }) => (byRun.get(nameOf(message)) ?? []).slice(0, message.run.position + 1));
}

const nameOf = ({ account, run }: Carrying["message"]): string => `${account} ${run.run}`;

const withBody = (delivery: Carrying, body: Bytes = noBytes): Delivery => ({ ...delivery, message: { ...delivery.message, body } });
