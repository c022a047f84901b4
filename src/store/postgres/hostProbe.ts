import type { Client } from "pg";
import type { Millis } from "../../core/model/message.ts";
import type { DatabaseLocation } from "./session.ts";
import { avoidHost, cutConnection, probeHost } from "./session.ts";
import { Interrupted, Unavailable } from "../store.ts";

/** A database that has not answered for this long is probed on a second connection. */
const probeAfter: Millis = 5_000;
/** The probe must answer within this time. */
const probeTimeout: Millis = 3_000;

/** `pause`: waits for this many milliseconds, or until `wake` is aborted. */
type HostWatchOptions = { client: Client; location: DatabaseLocation; pause(time: Millis, wake: AbortSignal): Promise<void> };

/** The host of a connection did not answer on a second connection either. */
export class HostSilent extends Unavailable {}

/**
 * Waits for `answer`, which needs `client`. A host that vanishes without a word (packets dropped, processes stopped) would be noticed
 * by the timeout of a statement alone, after 35 s. So every 5 s without an answer the same host is asked `select 1` on a second
 * connection. If that does not answer within 3 s, the connection is cut and the next one begins with another host. `answer` then fails
 * as for any lost connection, and this function throws `Silent`, or what `answer` made of it if that is `Interrupted`.
 */
export async function whileHostAnswers<T>(answer: Promise<T>, { client, location, pause }: HostWatchOptions): Promise<T> {
  const done = new AbortController();
  let isSilent = false;
  const watch = async (): Promise<void> => {
    do await pause(probeAfter, done.signal);
    while (!done.signal.aborted && (await answersProbe({ client, location, pause })));
    if (done.signal.aborted) return;
    isSilent = true;
    avoidHost(client, location);
    cutConnection(client);
  };
  void watch();
  try {
    return await answer;
  } catch (error) {
    throw isSilent && !(error instanceof Interrupted) ? new HostSilent("PostgreSQL does not answer", { cause: error }) : error;
  } finally {
    done.abort();
  }
}

async function answersProbe({ client, location, pause }: HostWatchOptions): Promise<boolean> {
  const finished = new AbortController();
  const timeout = pause(probeTimeout, finished.signal).then(() => false);
  const probe = probeHost(client, location).then(
    () => true,
    () => false,
  );
  try {
    return await Promise.race([probe, timeout]);
  } finally {
    finished.abort();
  }
}
