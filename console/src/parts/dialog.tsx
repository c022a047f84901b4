import { useQueryClient } from "@tanstack/react-query";
import { X } from "lucide-react";
import type { ReactElement, ReactNode, SyntheticEvent } from "react";
import { cloneElement, useEffect, useId, useRef, useState } from "react";
import { Button } from "./basics.tsx";
import { Refused } from "./trouble.tsx";
import { Visible } from "./visible.tsx";

type DialogProps = {
  title: string;
  isOpen?: boolean;
  close(): void;
  children: ReactNode;
  isWide?: boolean;
  /** Whether only a button of `children` closes it, because its content is not shown again. */
  isFirm?: boolean;
};

/** A dialog above the page. Escape or a press outside closes it, and the keyboard cannot leave it. */
export function Dialog(props: DialogProps) {
  const { title, isOpen = true, close, children, isWide = false, isFirm = false } = props;
  const dialog = useRef<HTMLDialogElement>(null);
  const id = useId();
  useEffect(() => {
    const before = document.activeElement;
    const element = dialog.current;
    if (!element) return;
    if (isOpen && !element.open) element.showModal();
    if (!isOpen && element.open) element.close();
    // A dialog that is removed while it is open does not give the focus back by itself.
    return () => {
      if (isOpen && !element.isConnected) focusAgain(before);
    };
  }, [isOpen]);
  return (
    <dialog
      ref={dialog}
      className={`dialog ${isWide ? "wide" : ""}`}
      aria-labelledby={id}
      // A browser may close a dialog at the second Escape, whatever the page says.
      onClose={isFirm ? () => dialog.current?.showModal() : close}
      onCancel={(event) => isFirm && event.preventDefault()}
      onClick={(event) => !isFirm && event.target === dialog.current && close()}
    >
      {isOpen && (
        <>
          <header>
            <h2 id={id}>
              <Visible text={title} />
            </h2>
            {!isFirm && <Button kind="ghost" isSmall icon={X} label="Close (Esc)" onClick={close} />}
          </header>
          {children}
        </>
      )}
    </dialog>
  );
}

/** Gives the focus back to an element, unless it is somewhere else by now. */
export function focusAgain(before: Element | null): void {
  if (document.activeElement !== document.body) return;
  const main = document.querySelector<HTMLElement>("main");
  if (before instanceof HTMLElement && before.isConnected) before.focus({ preventScroll: true });
  else main?.focus({ preventScroll: true });
}

type FormDialogProps = {
  title: string;
  /**
   * The text of the button that submits. Without it, the form shows settings that this session cannot change.
   */
  verb: string | null;
  close(): void;
  /** Sends the form. The dialog closes if the server accepts it. */
  act(given: FormData): Promise<unknown>;
  children: ReactNode;
  /** Further buttons. */
  extra?: ReactNode;
  /** Content below the form, which may have its own forms. */
  below?: ReactNode;
  kind?: "primary" | "danger-fill";
  /** Reports whether the form cannot be sent yet. */
  isBlocked?: boolean;
  isWide?: boolean;
};

/** A dialog with a form. It stays open with the reason if the server refuses. */
export function FormDialog(props: FormDialogProps) {
  const {
    title,
    verb,
    close,
    act,
    children,
    extra,
    below,
    kind = "primary",
    isBlocked = false,
    isWide,
  } = props;
  const { isBusy, error, run } = useAction();
  // Beside "Cancel 41", the button that cancels nothing must not have the same word.
  const leave = verb?.startsWith("Cancel") ? "Back" : "Cancel";
  const submit = (event: SyntheticEvent<HTMLFormElement>): void => {
    event.preventDefault();
    const given = new FormData(event.currentTarget);
    if (!isBusy && !isBlocked && verb !== null)
      void run(() => act(given)).then((isDone) => isDone && close());
  };
  return (
    <Dialog title={title} close={close} {...(isWide && { isWide })}>
      <form onSubmit={submit}>
        <div className="dialog-body">
          {children}
          <Refused error={error} />
        </div>
        <footer>
          {extra}
          <Button onClick={close}>{verb === null ? "Close" : leave}</Button>
          {verb !== null && (
            <Button type="submit" kind={kind} disabled={isBusy || isBlocked}>
              {verb}
            </Button>
          )}
        </footer>
      </form>
      {below !== undefined && <div className="dialog-body">{below}</div>}
    </Dialog>
  );
}

type ConfirmProps = {
  title: string;
  verb: string;
  close(): void;
  act(): Promise<unknown>;
  children: ReactNode;
  /** A string that the person must type, if the action is large and cannot be undone. */
  typed?: string;
  isDangerous?: boolean;
};

/** Asks before an action that cannot be undone. The button repeats the verb. */
export function Confirm({ title, verb, close, act, children, typed, isDangerous = true }: ConfirmProps) {
  const [given, setGiven] = useState("");
  return (
    <FormDialog
      title={title}
      verb={verb}
      close={close}
      act={act}
      kind={isDangerous ? "danger-fill" : "primary"}
      isBlocked={typed !== undefined && given !== typed}
    >
      {children}
      {typed !== undefined && (
        <label className="field">
          <span className="label">
            Type{" "}
            <b>
              <Visible text={typed} />
            </b>{" "}
            to confirm
          </span>
          <input
            className="input"
            value={given}
            onChange={(event) => setGiven(event.target.value)}
            autoComplete="off"
          />
        </label>
      )}
    </FormDialog>
  );
}

type FieldProps = {
  name: ReactNode;
  isOptional?: boolean;
  hint?: ReactNode;
  className?: string;
  /** The input. It gets the id that the name and the hint refer to. */
  children: ReactElement<{ id?: string; "aria-describedby"?: string | undefined }>;
};

/**
 * A field of a form: its name, the input, and a hint. A screen reader reads the hint, and whether the field
 * is optional, after the name and not as a part of it.
 */
export function Field({ name, isOptional = false, hint, className = "", children }: FieldProps) {
  const id = useId();
  const hintId = `${id}-hint`;
  const optionalId = `${id}-optional`;
  const described = [isOptional && optionalId, hint !== undefined && hintId].filter(Boolean).join(" ");
  return (
    <div className={`field ${className}`}>
      <div className="label">
        <label htmlFor={id}>{name}</label>{" "}
        {isOptional && (
          <span className="sub" id={optionalId}>
            optional
          </span>
        )}
      </div>
      {cloneElement(children, { id, "aria-describedby": described || undefined })}
      {hint !== undefined && (
        <span className="hint" id={hintId}>
          {hint}
        </span>
      )}
    </div>
  );
}

/** Runs an action and reads the page again. Keeps whether the action is running and why it was refused. */
export function useAction(): {
  isBusy: boolean;
  error: unknown;
  run(act: () => Promise<unknown>): Promise<boolean>;
  clear(): void;
} {
  const client = useQueryClient();
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
    } finally {
      void client.invalidateQueries();
    }
  };
  return { ...state, run, clear: () => setState({ isBusy: false, error: null }) };
}
