import type { Bytes, Delivery } from "../../core/model/message.ts";
import type { SentStep } from "../../core/model/run.ts";
import { entryText, historyBody } from "../../core/model/run.ts";
import { toStepId } from "../../core/model/stepId.ts";
import type { HistoryNeed, Loader } from "./loader.ts";
import type { BatchResult } from "../store.ts";

/**
 * The result of a batch that is written, with the bodies of deliveries that carry the history of a run: everything up
 * to the step that the message is for, and nothing after it (protocol 6.7). Where something of that is not there any more,
 * the message must not be sent: an endpoint would take what is left for the whole.
 */
export async function composed(loader: Pick<Loader, "rows" | "histories">, result: BatchResult): Promise<BatchResult> {
  const carrying = result.deliveries.filter(isCarrying);
  if (carrying.length === 0) return result;
  const bodies = await bodiesOf(loader, carrying);
  const deliveries = result.deliveries.map((delivery) => bodies.get(delivery) ?? delivery);
  const missing = deliveries.filter(({ unsendable }) => unsendable !== undefined);
  return { ...result, deliveries, faults: [...result.faults, ...missing.map(faultOf)] };
}

const faultOf = ({ message: { account, id }, unsendable }: Delivery): string =>
  `message ${id} of account ${account} is not sent: ${unsendable}`;

type Carrying = Delivery & { message: { run: NonNullable<Delivery["message"]["run"]> } };

/** One of size 0 is fetched by the endpoint itself. */
const isCarrying = (delivery: Delivery): delivery is Carrying => {
  const { run } = delivery.message;
  return run !== undefined && run.size > 0 && (run.kind === "step" || run.kind === "result");
};

async function bodiesOf(loader: Pick<Loader, "rows" | "histories">, carrying: readonly Carrying[]): Promise<Map<Delivery, Delivery>> {
  const results = carrying.filter(({ message }) => message.run.kind === "result");
  const ofRuns = Map.groupBy(
    carrying.filter(({ message }) => message.run.kind === "step"),
    ({ message: { account, run } }) => `${account} ${run.run}`,
  );
  const [single, histories] = await Promise.all([
    results.length === 0 ? [] : loader.rows("steps", results.map(keyOfStep)),
    ofRuns.size === 0 ? [] : loader.histories([...ofRuns.values()].flatMap(farthest)),
  ]);
  const byId = new Map(single.filter(({ damaged }) => !damaged).map((step) => [`${step.account} ${step.id}`, step]));
  const bodies = new Map<Delivery, Delivery>();
  for (const delivery of results) bodies.set(delivery, withBody(delivery, byId.get(keyOfStep(delivery).join(" "))?.body));
  [...ofRuns.values()].forEach((deliveries, at) => {
    const upTo = writtenOnce(histories[at] ?? []);
    for (const delivery of deliveries) bodies.set(delivery, withBody(delivery, upTo(delivery.message.run.position)));
  });
  return bodies;
}

const keyOfStep = ({ message: { account, run } }: Carrying): [account: string, id: string] => [account, toStepId(run.run, run.slot)];

/** Messages of one run have histories of different lengths; the longest has all of them in it. */
function farthest(deliveries: readonly Carrying[]): HistoryNeed[] {
  const upTo = deliveries.reduce((most, { message: { run } }) => Math.max(most, run.position), 0);
  return deliveries.slice(0, 1).map(({ message: { account, run } }) => ({ account, run: run.run, upTo }));
}

/**
 * A history up to any place in it. Thousands of messages may carry that of one run, so it is written once, and each has
 * as much of it as it carries. An entry has no letters beyond ASCII. Undefined where the history has a gap or ends before.
 */
function writtenOnce(steps: readonly SentStep[]): (position: number) => Bytes | undefined {
  const gap = steps.findIndex(({ position }, index) => position !== index);
  const whole = historyBody(gap < 0 ? steps : steps.slice(0, gap));
  const count = gap < 0 ? steps.length : gap;
  let ends: number[] | null = null;
  return (position) => {
    if (position >= count) return undefined;
    if (position === count - 1) return whole;
    ends ??= endsOf(steps);
    const end = ends[position] ?? 1;
    const body = whole.slice(0, end + 1);
    body[end] = closing;
    return body;
  };
}

/** Where each entry ends, counted from the bracket before the first one. */
function endsOf(steps: readonly SentStep[]): number[] {
  let end = 0;
  return steps.map((step) => (end += 1 + entryText(step).length));
}

const closing = "]".charCodeAt(0);

const withBody = (delivery: Carrying, body: Bytes | undefined): Delivery =>
  body
    ? { ...delivery, message: { ...delivery.message, body } }
    : { ...delivery, unsendable: "the history of its run is not there, or is damaged" };
