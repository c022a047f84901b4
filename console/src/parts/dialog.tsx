import { X } from "lucide-react";
import type { SyntheticEvent, ReactNode } from "react";
import { useEffect, useId, useRef, useState } from "react";
import { Button } from "./basics.tsx";
import { Refused } from "./trouble.tsx";

type DialogProps = { title: string; isOpen: boolean; close(): void; children: ReactNode; className?: string };

/** A dialog above the page. Escape and a press beside it close it, and the keyboard stays in it. */
export function Dialog({ title, isOpen, close, children, className = "" }: DialogProps) {
  const dialog = useRef<HTMLDialogElement>(null);
  const id = useId();
  useEffect(() => {
    const element = dialog.current;
    if (!element) return;
    if (isOpen && !element.open) element.showModal();
    if (!isOpen && element.open) element.close();
  }, [isOpen]);
  return (
    <dialog
      ref={dialog}
      className={`dialog ${className}`}
      aria-labelledby={id}
      onClose={close}
      onClick={(event) => event.target === dialog.current && close()}
    >
      {isOpen && (
        <>
          <header>
            <h2 id={id}>{title}</h2>
            <Button kind="ghost" isSmall icon={X} label="Close (Esc)" onClick={close} />
          </header>
          {children}
        </>
      )}
    </dialog>
  );
}

type ConfirmProps = {
  title: string;
  verb: string;
  isOpen: boolean;
  close(): void;
  act(): Promise<unknown>;
  children: ReactNode;
  /** A text that the person must type, for what cannot be undone and is large. */
  typed?: string;
  isDangerous?: boolean;
};

/** Asks before something that cannot be undone. The button repeats the verb. */
export function Confirm({
  title,
  verb,
  isOpen,
  close,
  act,
  children,
  typed,
  isDangerous = true,
}: ConfirmProps) {
  const [given, setGiven] = useState("");
  const { isBusy, error, run } = useAction();
  const mayAct = (typed === undefined || given === typed) && !isBusy;
  const submit = (event: SyntheticEvent): void => {
    event.preventDefault();
    if (mayAct) void run(act).then((isDone) => isDone && close());
  };
  return (
    <Dialog title={title} isOpen={isOpen} close={close}>
      <form onSubmit={submit}>
        <div className="dialog-body">
          {children}
          {typed !== undefined && (
            <label className="field">
              <span className="label">
                Type <b>{typed}</b> to confirm
              </span>
              <input
                className="input"
                value={given}
                onChange={(event) => setGiven(event.target.value)}
                autoComplete="off"
              />
            </label>
          )}
          <Refused error={error} />
        </div>
        <footer>
          <Button onClick={close}>Cancel</Button>
          <Button type="submit" kind={isDangerous ? "danger-fill" : "primary"} disabled={!mayAct}>
            {verb}
          </Button>
        </footer>
      </form>
    </Dialog>
  );
}

/** Runs an action, and keeps whether it is under way and why it was refused. */
export function useAction(): {
  isBusy: boolean;
  error: unknown;
  run(act: () => Promise<unknown>): Promise<boolean>;
  clear(): void;
} {
  const [state, setState] = useState<{ isBusy: boolean; error: unknown }>({ isBusy: false, error: null });
  const run = async (act: () => Promise<unknown>): Promise<boolean> => {
    setState({ isBusy: true, error: null });
    try {
      await act();
      setState({ isBusy: false, error: null });
      return true;
    } catch (error) {
      setState({ isBusy: false, error });
      return false;
    }
  };
  return { ...state, run, clear: () => setState({ isBusy: false, error: null }) };
}
