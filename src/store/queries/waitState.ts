import type { AccountId, Envelope, LogRow, MessageId, MessageState, Outline } from "../../core/model/message.ts";
import { isUnfinished } from "../../core/model/message.ts";
import { saidIn } from "../../core/model/failureText.ts";
import type { LimiterGate } from "../../core/admission/gate.ts";
import { formatGate, isAccountLimit, keyGate, parseGate, queueGate, readWaitlist } from "../../core/admission/gate.ts";
import { toLimiterKey } from "../../core/admission/limiter.ts";
import type { Standing } from "../../core/sending/whyWaiting.ts";
import { mostCounted, mostPlaces } from "../../core/sending/whyWaiting.ts";
import type { Shelf } from "./storageReads.ts";
import { wholeLog } from "./wholeLog.ts";

/** How an unfinished message stands, by a bounded number of reads. Null when it has been finished. */
export async function standingOf(shelf: Shelf, account: AccountId, id: MessageId): Promise<Standing | null> {
  const [[state], [envelope], [last]] = await Promise.all([
    shelf.rows("messages", [[account, id]]),
    shelf.rows("envelopes", [[account, id]], { bodies: false }),
    wholeLog(shelf).logOf(id, { account, descending: true, limit: 1 }),
  ]);
  if (!state || !envelope || !isUnfinished(state)) return null;
  const waitlist = readWaitlist(state);
  const gates: LimiterGate[] = [
    ...(state.queue === null ? [] : [queueGate(state.queue)]),
    ...(state.flowKey === null ? [] : [keyGate(state.flowKey)]),
    ...(waitlist !== null && isAccountLimit(waitlist) ? [waitlist] : []),
  ];
  const rows = await shelf.rows(
    "flows",
    gates.map((gate) => toLimiterKey({ account, gate })),
  );
  const limiters = new Map(rows.map((row) => [parseGate(row.id).kind, row]));
  return {
    state,
    ...{ retries: envelope.retries, createdAt: envelope.createdAt, notBefore: envelope.notBefore },
    last: last ? { ...last, ...saidOf(envelope, last) } : null,
    queue: limiters.get("queue") ?? null,
    key: limiters.get("key") ?? null,
    allowance: limiters.get("endpoint") ?? limiters.get("account") ?? null,
    before: state.line === null ? 0 : await shelf.countBefore(state, mostCounted + 1),
    places: await placesOf(shelf, state),
  };
}

/** What the endpoint of a workflow said of its failure, unless bodies are hidden. Any other destination speaks to whoever reads the log. */
const saidOf = ({ run, redaction }: Outline<Envelope>, { body }: LogRow): { said?: string } =>
  run === undefined || run.kind === "call" || redaction?.body ? {} : saidIn(body);

/** Who holds the places of its queue, if that is what it waits for. */
async function placesOf(shelf: Shelf, { account, queue, line }: MessageState): Promise<Standing["places"]> {
  if (queue === null || line !== formatGate(queueGate(queue))) return [];
  const slots = await shelf.slotsOfQueue(account, queue, mostPlaces);
  return Promise.all(slots.map(async ({ id }) => ({ messageId: id, holders: await shelf.holdersOf(account, id, mostPlaces) })));
}
