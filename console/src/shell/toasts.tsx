import { useQueryClient } from "@tanstack/react-query";
import { CircleCheck, CircleX, X } from "lucide-react";
import type { ReactNode } from "react";
import { createContext, use, useCallback, useMemo, useState } from "react";
import { Button, Icon } from "../parts/basics.tsx";
import { toMessage } from "../parts/words.ts";
import { Visible } from "../parts/visible.tsx";

type Toast = { id: number; text: string; isBad: boolean; undo?: () => Promise<unknown> };
type Toasts = { say(text: string, more?: { isBad?: boolean; undo?: () => Promise<unknown> }): void };

const ToastContext = createContext<Toasts>({ say: () => undefined });

/** Returns the function that reports an action to the person, with a way to undo it if there is one. */
export const useToasts = (): Toasts => use(ToastContext);

const span = 8_000;

/** Keeps the toasts and shows them. A screen reader reads each when it comes. */
export function ToastProvider({ children }: { children: ReactNode }) {
  const [toasts, setToasts] = useState<readonly Toast[]>([]);
  const remove = useCallback((id: number) => setToasts((all) => all.filter((one) => one.id !== id)), []);
  const say = useCallback<Toasts["say"]>(
    (text, { isBad = false, undo } = {}) => {
      const id = Math.random();
      setToasts((all) => [...all.slice(-2), { id, text, isBad, ...(undo && { undo }) }]);
      setTimeout(() => remove(id), isBad ? 2 * span : span);
    },
    [remove],
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
          <div key={toast.id} className={`toast ${toast.isBad ? "bad" : ""}`}>
            <Icon of={toast.isBad ? CircleX : CircleCheck} />
            <span className="grow">
              <Visible text={toast.text} />
            </span>
            {toast.undo && (
              <Button isSmall onClick={() => undo(toast)}>
                Undo
              </Button>
            )}
            <Button kind="ghost" isSmall icon={X} label="Close" onClick={() => remove(toast.id)} />
          </div>
        ))}
      </div>
    </ToastContext>
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
