import type { LucideIcon } from "lucide-react";
import type { ReactNode } from "react";
import { useEffect, useRef, useState } from "react";
import { Icon } from "./basics.tsx";

type PopButtonProps = {
  icon: LucideIcon;
  text: string;
  /** The part that the button opens. It gets the function that closes it. */
  children(close: () => void): ReactNode;
};

/** A button that opens a small part below itself. Escape and a press outside close it. */
export function PopButton({ icon, text, children }: PopButtonProps) {
  const [isOpen, setIsOpen] = useState(false);
  const place = useRef<HTMLSpanElement>(null);
  const button = useRef<HTMLButtonElement>(null);
  useEffect(() => {
    if (!isOpen) return;
    const close = (event: Event): void => {
      const isOutside = event.target instanceof Node && !place.current?.contains(event.target);
      const isEscape = event instanceof KeyboardEvent && event.key === "Escape";
      if (isOutside || isEscape) setIsOpen(false);
      if (isEscape) button.current?.focus();
    };
    document.addEventListener("pointerdown", close);
    document.addEventListener("keydown", close);
    return () => {
      document.removeEventListener("pointerdown", close);
      document.removeEventListener("keydown", close);
    };
  }, [isOpen]);
  const done = (): void => {
    setIsOpen(false);
    button.current?.focus();
  };
  return (
    <span className="pop-place" ref={place}>
      <button
        type="button"
        ref={button}
        className="btn sm ghost"
        aria-expanded={isOpen}
        onClick={() => setIsOpen(!isOpen)}
      >
        <Icon of={icon} />
        {text}
      </button>
      {isOpen && children(done)}
    </span>
  );
}
