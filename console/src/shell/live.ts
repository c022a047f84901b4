import { createContext, use, useEffect } from "react";

/**
 * Whether the page reads again by itself. It stops when the person pauses it, and while rows are chosen
 * (`frozen`), so that what is read never moves.
 */
export type Live = {
  isLive: boolean;
  isPaused: boolean;
  frozen: string | null;
  pause(paused: boolean): void;
  freeze(reason: string | null): void;
};

export const LiveContext = createContext<Live>({
  isLive: true,
  isPaused: false,
  frozen: null,
  pause: () => undefined,
  freeze: () => undefined,
});

export const useLive = (): Live => use(LiveContext);

/** Stops reading again while `isFrozen`. The reason is shown in the head of the page. */
export function useFreeze(isFrozen: boolean, reason: string): void {
  const { freeze } = useLive();
  useEffect(() => {
    freeze(isFrozen ? reason : null);
    return () => freeze(null);
  }, [isFrozen, reason, freeze]);
}
