import type { LucideIcon } from "lucide-react";
import { Pause, Play } from "lucide-react";
import type { ReactNode } from "react";
import { useState } from "react";
import { useMay } from "../api/session.ts";
import { useDo } from "../shell/toasts.tsx";
import { Button } from "./basics.tsx";
import { Confirm } from "./dialog.tsx";
import { showHidden } from "./hidden.ts";

type PauseProps = {
  /** The paused or active thing, such as "Queue parcels". */
  name: string;
  isPaused: boolean;
  pause(): Promise<unknown>;
  resume(): Promise<unknown>;
  isLarge?: boolean;
};

/** Pauses or resumes something. The person can undo it, so the button does not ask first. */
export function PauseButton({ name, isPaused, pause, resume, isLarge = false }: PauseProps) {
  const may = useMay();
  const act = useDo();
  if (!may.manage) return null;
  return (
    <Button
      isSmall={!isLarge}
      icon={isPaused ? Play : Pause}
      aria-label={`${isPaused ? "Resume" : "Pause"}: ${showHidden(name)}`}
      onClick={() =>
        void (isPaused ? act(resume, `${name} is resumed`, pause) : act(pause, `${name} is paused`, resume))
      }
    >
      {isPaused ? "Resume" : "Pause"}
    </Button>
  );
}

type ConfirmButtonProps = {
  /** The action with its object, such as "Delete source payments". It is the title of the question. */
  title: string;
  /** The action, such as "Delete source". */
  verb: string;
  act(): Promise<unknown>;
  /** The effect of the action. */
  children: ReactNode;
  /** The name that the person must type. */
  typed?: string;
  icon?: LucideIcon;
  /** The text of the button. Without it, the button shows only the icon. */
  text?: string;
  kind?: "ghost" | "danger";
  isLarge?: boolean;
  /** Whether the session has the right. Without it: whether the session may manage the account. */
  isAllowed?: boolean;
};

/** A button for an action that cannot be undone. It asks first. */
export function ConfirmButton(props: ConfirmButtonProps) {
  const {
    title,
    verb,
    act,
    children,
    typed,
    icon,
    text,
    kind = text === undefined ? "ghost" : undefined,
    isLarge = false,
  } = props;
  const { manage } = useMay();
  const [isAsking, setIsAsking] = useState(false);
  if (!(props.isAllowed ?? manage)) return null;
  return (
    <>
      <Button
        isSmall={!isLarge}
        {...(kind && { kind })}
        {...(icon && { icon })}
        {...(text === undefined && { label: title })}
        onClick={() => setIsAsking(true)}
      >
        {text}
      </Button>
      {isAsking && (
        <Confirm
          title={title}
          verb={verb}
          close={() => setIsAsking(false)}
          act={act}
          {...(typed !== undefined && { typed })}
        >
          {children}
        </Confirm>
      )}
    </>
  );
}
