import { useEffect, useMemo, useRef, useState, useSyncExternalStore } from "react";
import { follow, Trouble } from "../../api/client.ts";
import type { Sent } from "../../api/client.ts";
import { toMessage } from "../../parts/words.ts";
import type { TailLine, TailView } from "./tailRows.ts";
import { TailRows } from "./tailRows.ts";

/** The connection: open, being opened, to be opened again at a time, or refused for good. */
export type TailState =
  | { kind: "open" }
  | { kind: "opening" }
  | { kind: "waiting"; until: number; why: string }
  | { kind: "refused"; why: string };

type Filters = NonNullable<Sent<"GET /v2/logs/tail">["query"]>;

/** How often new rows are shown, in milliseconds. */
const showEvery = 250;
const firstPause = 1_000;
const longestPause = 15_000;

export type Tail = { view: TailView; state: TailState; clear(): void; reconnect(): void };

function listenToVisibility(listener: () => void): () => void {
  document.addEventListener("visibilitychange", listener);
  return () => document.removeEventListener("visibilitychange", listener);
}

/** Follows the log with these filters. While paused, new rows wait. A hidden page has no connection. */
export function useTail(query: Filters, isPaused: boolean): Tail {
  const key = JSON.stringify(query);
  const rows = useMemo(() => new TailRows(), []);
  const [state, setState] = useState<TailState>({ kind: "opening" });
  const [view, setView] = useState(rows.view);
  const [attempt, setAttempt] = useState(0);
  const paused = useRef(isPaused);
  paused.current = isPaused;
  useEffect(() => {
    const timer = setInterval(() => {
      if (paused.current ? rows.count() : rows.flush()) setView(rows.view);
    }, showEvery);
    return () => clearInterval(timer);
  }, [rows]);
  const isHidden = useSyncExternalStore(listenToVisibility, () => document.visibilityState === "hidden");
  useEffect(() => {
    if (isHidden) {
      rows.hide();
      return;
    }
    const stop = new AbortController();
    void stayConnected({
      query: JSON.parse(key) as Filters,
      signal: stop.signal,
      begin: () => rows.begin(),
      take: (line) => rows.take(line),
      setState,
    });
    return () => stop.abort();
  }, [key, attempt, rows, isHidden]);
  return {
    view,
    state,
    clear: () => {
      rows.clear();
      setView(rows.view);
    },
    reconnect: () => setAttempt((count) => count + 1),
  };
}

type Connection = {
  query: Filters;
  signal: AbortSignal;
  begin(): void;
  take(line: TailLine): void;
  setState(state: TailState): void;
};

/** Keeps the stream open until the signal. A lost stream is opened again, after longer and longer pauses. */
async function stayConnected({ query, signal, begin, take, setState }: Connection): Promise<void> {
  let pause = firstPause;
  while (!signal.aborted) {
    let why = "the connection was lost";
    setState({ kind: "opening" });
    begin();
    try {
      await follow("GET /v2/logs/tail", { query, signal }, (line) => {
        if (signal.aborted) return;
        if ("ended" in line) return void (why = line.ended);
        if ("heartbeat" in line) {
          pause = firstPause;
          setState({ kind: "open" });
        }
        take(line);
      });
    } catch (error) {
      if (signal.aborted) return;
      why = toMessage(error);
      if (error instanceof Trouble && [400, 401, 403, 404].includes(error.status))
        return setState({ kind: "refused", why });
    }
    if (signal.aborted) return;
    setState({ kind: "waiting", until: Date.now() + pause, why });
    await sleep(pause, signal);
    pause = Math.min(2 * pause, longestPause);
  }
}

const sleep = (span: number, signal: AbortSignal): Promise<void> =>
  new Promise((resolve) => {
    const timer = setTimeout(resolve, span);
    signal.addEventListener("abort", () => (clearTimeout(timer), resolve()), { once: true });
  });
