import type { Bytes, Delivery } from "../../core/model/message.ts";
import type { SentStep } from "../../core/model/run.ts";
import { formatHistoryEntry, formatHistory } from "../../core/model/run.ts";
import { toStepId } from "../../core/model/stepId.ts";
import type { HistoryNeed, Loader } from "./loader.ts";
import type { BatchResult } from "../store.ts";

/**
 * Returns the result of a stored batch, with bodies for the deliveries that carry the history of a run. A
 * body contains everything up to the step that the message is for, and nothing after it (protocol 6.7). If a
 * part of the history is missing, the message must not be sent, because the endpoint would treat the rest as
 * the whole history.
 */
export async function withHistoryBodies(
  loader: Pick<Loader, "rows" | "histories">,
  result: BatchResult,
): Promise<BatchResult> {
  const carriers = result.deliveries.filter(carriesHistory);
  if (carriers.length === 0) return result;
  const bodies = await loadBodies(loader, carriers);
  const deliveries = result.deliveries.map((delivery) => bodies.get(delivery) ?? delivery);
  const missing = deliveries.filter(({ unsendable }) => unsendable !== undefined);
  return { ...result, deliveries, faults: [...result.faults, ...missing.map(formatMissingHistory)] };
}

const formatMissingHistory = ({ message: { account, id }, unsendable }: Delivery): string =>
  `message ${id} of account ${account} is not sent: ${unsendable}`;

type HistoryCarrier = Delivery & { message: { run: NonNullable<Delivery["message"]["run"]> } };

/** If the size is 0, the endpoint fetches the history itself. */
const carriesHistory = (delivery: Delivery): delivery is HistoryCarrier => {
  const { run } = delivery.message;
  return run !== undefined && run.size > 0 && (run.kind === "step" || run.kind === "result");
};

async function loadBodies(
  loader: Pick<Loader, "rows" | "histories">,
  carriers: readonly HistoryCarrier[],
): Promise<Map<Delivery, Delivery>> {
  const results = carriers.filter(({ message }) => message.run.kind === "result");
  const byRun = Map.groupBy(
    carriers.filter(({ message }) => message.run.kind === "step"),
    ({ message: { account, run } }) => `${account} ${run.run}`,
  );
  const [resultSteps, histories] = await Promise.all([
    results.length === 0 ? [] : loader.rows("steps", results.map(toStepRowKey)),
    byRun.size === 0 ? [] : loader.histories([...byRun.values()].flatMap(longestHistoryNeed)),
  ]);
  const byId = new Map(
    resultSteps.filter(({ damaged }) => !damaged).map((step) => [`${step.account} ${step.id}`, step]),
  );
  const bodies = new Map<Delivery, Delivery>();
  for (const delivery of results)
    bodies.set(delivery, withBody(delivery, byId.get(toStepRowKey(delivery).join(" "))?.body));
  [...byRun.values()].forEach((deliveries, at) => {
    const historyUpTo = sliceHistory(histories[at] ?? []);
    for (const delivery of deliveries)
      bodies.set(delivery, withBody(delivery, historyUpTo(delivery.message.run.position)));
  });
  return bodies;
}

const toStepRowKey = ({ message: { account, run } }: HistoryCarrier): [account: string, id: string] => [
  account,
  toStepId(run.run, run.stepKey),
];

/**
 * Returns the longest history that these messages of one run carry. It contains the histories of all of them.
 */
function longestHistoryNeed(deliveries: readonly HistoryCarrier[]): HistoryNeed[] {
  const upTo = deliveries.reduce(
    (maxPosition, { message: { run } }) => Math.max(maxPosition, run.position),
    0,
  );
  return deliveries.slice(0, 1).map(({ message: { account, run } }) => ({ account, run: run.run, upTo }));
}

/**
 * Returns a function that returns a history up to a position, or undefined if the history has a gap or ends
 * before that position. Thousands of messages may carry the history of one run, so it is formatted once and
 * each message gets a slice. Entries contain only ASCII, so characters are bytes.
 */
function sliceHistory(steps: readonly SentStep[]): (position: number) => Bytes | undefined {
  const gapAt = steps.findIndex(({ position }, index) => position !== index);
  const fullBody = formatHistory(gapAt < 0 ? steps : steps.slice(0, gapAt));
  const count = gapAt < 0 ? steps.length : gapAt;
  let ends: number[] | null = null;
  return (position) => {
    if (position >= count) return undefined;
    if (position === count - 1) return fullBody;
    ends ??= listEntryEnds(steps);
    const end = ends[position] ?? 1;
    const body = fullBody.slice(0, end + 1);
    body[end] = closingBracket;
    return body;
  };
}

/** Returns the end of each entry, counted from the bracket before the first one. */
function listEntryEnds(steps: readonly SentStep[]): number[] {
  let end = 0;
  return steps.map((step) => (end += 1 + formatHistoryEntry(step).length));
}

const closingBracket = "]".charCodeAt(0);

const withBody = (delivery: HistoryCarrier, body: Bytes | undefined): Delivery =>
  body
    ? { ...delivery, message: { ...delivery.message, body } }
    : { ...delivery, unsendable: "the history of the run is missing or damaged" };
