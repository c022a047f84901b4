import type { Client } from "pg";
import type { Millis } from "../../core/values/basics.ts";
import type { DatabaseLocation } from "./connect.ts";
import { avoidHost, cutConnection, probeHost } from "./connect.ts";
import { Interrupted, Unavailable } from "../layout/storageErrors.ts";

/** A database that has not answered for this long is probed on a second connection. */
const probeAfter: Millis = 2_000;
/** The probe must answer within this time. */
const probeTimeout: Millis = 3_000;

/** `pause` waits for `time` milliseconds, or until `wake` is aborted. */
type HostWatchOptions = {
  client: Client;
  location: DatabaseLocation;
  pause(time: Millis, wake: AbortSignal): Promise<void>;
};

/** Thrown if a host answers neither on the connection in use nor on a second connection. */
export class HostSilent extends Unavailable {}

/**
 * Waits for `answer`, which needs `client`. If a host vanishes without closing the connection (packets
 * dropped, processes stopped), only a statement timeout would notice it, after 35 s. After every 2 s without
 * an answer, the same host is therefore asked `select 1` on a second connection. If the host does not answer
 * within 3 s, the connection is cut, and the next connection is tried with another host first. `answer` then
 * fails as after any lost connection. This function throws `HostSilent`, or the error of `answer` if that
 * error is `Interrupted`.
 */
export async function whileHostAnswers<T>(
  answer: Promise<T>,
  { client, location, pause }: HostWatchOptions,
): Promise<T> {
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
    throw isSilent && !(error instanceof Interrupted)
      ? new HostSilent("PostgreSQL does not answer", { cause: error })
      : error;
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
