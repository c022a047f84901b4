import type { Client, Notification } from "pg";
import type { Millis, NodeId } from "../core/message.ts";
import type { PostgresOptions } from "./postgresSession.ts";
import { connect } from "./postgresSession.ts";

/** Where nodes tell each other what became due: `<node> <time of the database>`. */
export const channel = "waypost_due";

/** Where they tell each other that accounts were changed: `<node>`. */
export const accountChannel = "waypost_accounts";

/** A connection that nothing was heard of for so long is asked whether it is still there. */
const heartbeat: Millis = 30_000;
/** Between two tries to connect again, at least and at most. */
const shortestPause: Millis = 100;
const longestPause: Millis = 5_000;

/** `hear` sets who is told the times that other nodes tell of; `hearAccounts` who is told that accounts were changed. */
export type DueListener = { hear(tell: (at: Millis) => void): void; hearAccounts(tell: () => void): void; close(): Promise<void> };

/**
 * Listens to the other nodes on a connection of its own, and connects again for as long as it takes. Whatever was said
 * meanwhile is lost, so then it tells of time 0: that there may be something to do now.
 */
export async function listenForDue({ url, node, clock }: Pick<PostgresOptions, "url" | "node" | "clock">): Promise<DueListener> {
  const end = new AbortController();
  let tell: (at: Millis) => void = () => undefined;
  let tellAccounts: () => void = () => undefined;
  const onNotification = ({ channel: on, payload = "" }: Notification): void => {
    if (on === accountChannel) return payload === node ? undefined : tellAccounts();
    const at = dueAtOf(payload, node);
    if (at !== null) tell(at);
  };
  let client = await listening(url, onNotification);

  const keep = async (): Promise<void> => {
    while (!end.signal.aborted) {
      await stillThere(client);
      if (end.signal.aborted) return;
      await client.end().catch(() => undefined);
      await connectAgain();
    }
  };

  /** Ends when the connection is lost, or the listener is closed. */
  const stillThere = async (current: Client): Promise<void> => {
    const wake = new AbortController();
    const lost = (): void => wake.abort();
    current.once("end", lost);
    end.signal.addEventListener("abort", lost);
    while (!wake.signal.aborted) {
      await clock.sleep(clock.now() + heartbeat, wake.signal);
      if (!wake.signal.aborted) await current.query("select 1").catch(lost);
    }
    end.signal.removeEventListener("abort", lost);
  };

  const connectAgain = async (): Promise<void> => {
    for (let pause = shortestPause; !end.signal.aborted; pause = Math.min(2 * pause, longestPause)) {
      try {
        client = await listening(url, onNotification);
        tellAccounts();
        return tell(0);
      } catch {
        await clock.sleep(clock.now() + pause, end.signal);
      }
    }
  };

  const kept = keep();
  return {
    hear: (listener) => {
      tell = listener;
    },
    hearAccounts: (listener) => {
      tellAccounts = listener;
    },
    close: async () => {
      end.abort();
      await kept;
      await client.end();
    },
  };
}

async function listening(url: string, onNotification: (notification: Notification) => void): Promise<Client> {
  const client = await connect(url, { kind: "listener" });
  client.on("notification", onNotification);
  await client.query(`listen ${channel}; listen ${accountChannel}`);
  return client;
}

/** Null: this node's own, or not in our words. */
function dueAtOf(payload: string, node: NodeId): Millis | null {
  const [from, at] = payload.split(" ");
  return from === node || !at || !/^\d{1,15}$/.test(at) ? null : Number(at);
}
