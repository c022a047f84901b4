import { Readable } from "node:stream";
import type { AccountId } from "../../engine/core/values/basics.ts";
import type { Run } from "../../engine/core/model/run.ts";
import { formatHistoryEntry } from "../../engine/core/model/run.ts";
import type { Store } from "../../engine/store/store.ts";

/** The intended size of one read, in bytes. The size is estimated from the entries that were read before. */
const maxBytes = 4 * 1024 * 1024;
/** The maximum number of entries of one read. */
const maxEntries = 500;

/**
 * Returns the history of a run as a stream of JSON, which the client fetches. A history can have 128 MiB, so
 * entries are read only as fast as the client receives them.
 */
export async function createHistoryStream(
  store: Store,
  { account, id }: Pick<Run, "account" | "id">,
): Promise<Readable> {
  const entries = await store.read.history(account, id, { bodies: false });
  return Readable.from(
    writePieces(
      store,
      account,
      entries.map((entry) => entry.id),
    ),
    { objectMode: false, highWaterMark: 1 },
  );
}

async function* writePieces(
  store: Store,
  account: AccountId,
  ids: readonly string[],
): AsyncGenerator<string> {
  let separator = "[";
  let at = 0;
  let together = 1;
  while (at < ids.length) {
    const steps = await store.read.steps(account, ids.slice(at, at + together));
    at += together;
    let bytes = 0;
    for (const step of steps) {
      // The error closes the connection early. The client therefore notices that the history is incomplete.
      if (step.damaged) throw new Error(`step ${step.id} of account ${account} is damaged in the store`);
      yield `${separator}${formatHistoryEntry(step)}`;
      separator = ",";
      bytes += step.body.byteLength;
    }
    together = Math.max(
      1,
      Math.min(maxEntries, Math.floor((together * maxBytes) / Math.max(bytes, maxBytes / 4))),
    );
  }
  yield separator === "[" ? "[]" : "]";
}
