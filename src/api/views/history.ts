import { Readable } from "node:stream";
import type { AccountId } from "../../core/model/message.ts";
import type { Run } from "../../core/model/run.ts";
import { formatHistoryEntry } from "../../core/model/run.ts";
import type { Store } from "../../store/store.ts";

/** Entries are read together as far as this goes, going by the size of those before. */
const maxBytes = 4 * 1024 * 1024;
const maxEntries = 500;

/**
 * The history of a run as JSON (protocol 6.7), in pieces: it may come to 64 MiB, of which no more is read than whoever
 * asks has room for.
 */
export async function createHistoryStream(store: Store, { account, id }: Pick<Run, "account" | "id">): Promise<Readable> {
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

async function* writePieces(store: Store, account: AccountId, ids: readonly string[]): AsyncGenerator<string> {
  let separator = "[";
  for (let [at, together] = [0, 1]; at < ids.length;) {
    const steps = await store.read.steps(account, ids.slice(at, at + together));
    at += together;
    let bytes = 0;
    for (const step of steps) {
      // What was sent is cut off, so that nobody takes it for the whole.
      if (step.damaged) throw new Error(`step ${step.id} of account ${account} is damaged in the store`);
      yield `${separator}${formatHistoryEntry(step)}`;
      separator = ",";
      bytes += step.body.byteLength;
    }
    together = Math.max(1, Math.min(maxEntries, Math.floor((together * maxBytes) / Math.max(bytes, maxBytes / 4))));
  }
  yield separator === "[" ? "[]" : "]";
}
