import { useQueryClient } from "@tanstack/react-query";
import { CircleCheck, CircleX, X } from "lucide-react";
import type { ReactNode } from "react";
import { createContext, use, useCallback, useEffect, useMemo, useState } from "react";
import { Button, Icon } from "../parts/basics.tsx";
import { PageLink } from "../parts/link.tsx";
import { toMessage } from "../parts/words.ts";
import { Visible } from "../parts/visible.tsx";

type Toast = {
  id: number;
  text: string;
  isBad: boolean;
  /** Whether the focus or the pointer is in it. It then stays. */
  isHeld: boolean;
  undo?: () => Promise<unknown>;
  /** The page of what the text is about. */
  place?: Place;
};
type Place = { to: string; search: Readonly<Record<string, string>> };
type Toasts = {
  say(text: string, more?: { isBad?: boolean; undo?: () => Promise<unknown>; place?: Place }): void;
};

const ToastContext = createContext<Toasts>({ say: () => undefined });

/** Returns the function that reports an action to the person, with a way to undo it if there is one. */
export const useToasts = (): Toasts => use(ToastContext);

const span = 8_000;

/** Keeps the toasts and shows them. A screen reader reads each when it comes. */
export function ToastProvider({ children }: { children: ReactNode }) {
  const [toasts, setToasts] = useState<readonly Toast[]>([]);
  const remove = useCallback((id: number) => setToasts((all) => all.filter((one) => one.id !== id)), []);
  const say = useCallback<Toasts["say"]>((text, { isBad = false, undo, place } = {}) => {
    const id = Math.random();
    const added = { id, text, isBad, isHeld: false, ...(undo && { undo }), ...(place && { place }) };
    setToasts((all) => [...all.filter(({ isHeld }, at) => isHeld || at >= all.length - 2), added]);
  }, []);
  const hold = useCallback(
    (id: number, isHeld: boolean) =>
      setToasts((all) => all.map((one) => (one.id === id ? { ...one, isHeld } : one))),
    [],
  );
  const value = useMemo(() => ({ say }), [say]);
  const undo = (toast: Toast): void => {
    remove(toast.id);
    toast.undo?.().then(
      () => say("Undone"),
      (error: unknown) => say(toMessage(error), { isBad: true }),
    );
  };
  return (
    <ToastContext value={value}>
      {children}
      <div className="toasts" role="status" aria-live="polite">
        {toasts.map((toast) => (
          <ToastRow key={toast.id} toast={toast} undo={() => undo(toast)} remove={remove} hold={hold} />
        ))}
      </div>
    </ToastContext>
  );
}

type RowProps = {
  toast: Toast;
  undo(): void;
  remove(id: number): void;
  hold(id: number, isHeld: boolean): void;
};

/** One toast. It goes after a time, but not while the focus or the pointer is in it. */
function ToastRow({ toast, undo, remove, hold }: RowProps) {
  const { id, text, isBad, isHeld } = toast;
  useEffect(() => {
    if (isHeld) return;
    const timer = setTimeout(() => remove(id), isBad ? 2 * span : span);
    return () => clearTimeout(timer);
  }, [id, isBad, isHeld, remove]);
  return (
    <div
      className={`toast ${isBad ? "bad" : ""}`}
      onFocus={() => hold(id, true)}
      onBlur={({ currentTarget }) => hold(id, currentTarget.matches(":hover"))}
      onMouseEnter={() => hold(id, true)}
      onMouseLeave={({ currentTarget }) => hold(id, currentTarget.matches(":focus-within"))}
    >
      <Icon of={isBad ? CircleX : CircleCheck} />
      <span className="grow">
        <Visible text={text} />
      </span>
      {toast.place && (
        <PageLink className="btn sm" {...toast.place}>
          Show
        </PageLink>
      )}
      {toast.undo && (
        <Button isSmall onClick={undo}>
          Undo
        </Button>
      )}
      <Button kind="ghost" isSmall icon={X} label="Close" onClick={() => remove(id)} />
    </div>
  );
}

/** Runs a change, reads the page again, and reports what was done or why the server refused. */
export type Do = (
  change: () => Promise<unknown>,
  done: string,
  undo?: () => Promise<unknown>,
) => Promise<boolean>;

/** Returns a function that runs a change. Its promise is true if the server accepted the change. */
export function useDo(): Do {
  const { say } = useToasts();
  const client = useQueryClient();
  return async (change, done, undo) => {
    const runAndRead = async (run: () => Promise<unknown>): Promise<void> => {
      try {
        await run();
      } finally {
        void client.invalidateQueries();
      }
    };
    try {
      await runAndRead(change);
      say(done, undo ? { undo: () => runAndRead(undo) } : {});
      return true;
    } catch (error) {
      say(toMessage(error), { isBad: true });
      return false;
    }
  };
}
