import type { Client } from "pg";
import type { Millis } from "../../core/model/message.ts";
import type { Place } from "./session.ts";
import { avoidHostOf, cut, probeHostOf } from "./session.ts";
import { Interrupted, Unavailable } from "../store.ts";

/** A database that has not answered for this long is probed on a second connection. */
const suspiciousAfter: Millis = 5_000;
/** The probe must answer within this time. */
const probePatience: Millis = 3_000;

/** `pause`: waits for this many milliseconds, or until `wake` is aborted. */
type Watching = { client: Client; place: Place; pause(time: Millis, wake: AbortSignal): Promise<void> };

/** The host of a connection did not answer on a second connection either. */
export class Silent extends Unavailable {}

/**
 * Waits for `answer`, which needs `client`. A host that vanishes without a word (packets dropped, processes stopped) would be noticed
 * by the timeout of a statement alone, after 35 s. So every 5 s without an answer the same host is asked `select 1` on a second
 * connection. If that does not answer within 3 s, the connection is cut and the next one begins with another host. `answer` then fails
 * as for any lost connection, and this function throws `Silent`, or what `answer` made of it if that is `Interrupted`.
 */
export async function whileHostAnswers<T>(answer: Promise<T>, { client, place, pause }: Watching): Promise<T> {
  const done = new AbortController();
  let isSilent = false;
  const watch = async (): Promise<void> => {
    do await pause(suspiciousAfter, done.signal);
    while (!done.signal.aborted && (await answersProbe({ client, place, pause })));
    if (done.signal.aborted) return;
    isSilent = true;
    avoidHostOf(client, place);
    cut(client);
  };
  void watch();
  try {
    return await answer;
  } catch (error) {
    throw isSilent && !(error instanceof Interrupted) ? new Silent("PostgreSQL does not answer", { cause: error }) : error;
  } finally {
    done.abort();
  }
}

async function answersProbe({ client, place, pause }: Watching): Promise<boolean> {
  const over = new AbortController();
  const patience = pause(probePatience, over.signal).then(() => false);
  const probe = probeHostOf(client, place).then(
    () => true,
    () => false,
  );
  try {
    return await Promise.race([probe, patience]);
  } finally {
    over.abort();
  }
}
