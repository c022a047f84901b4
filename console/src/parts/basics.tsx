import type { LucideIcon } from "lucide-react";
import { Check, Copy } from "lucide-react";
import type { ButtonHTMLAttributes, ReactNode } from "react";
import { useState, useSyncExternalStore } from "react";
import { formatClock, formatExact, formatRelative, shortId, splitUrl } from "./words.ts";
import { Visible } from "./visible.tsx";

/** An icon of 16 px. It says nothing to a screen reader: its button does. */
export const Icon = ({ of: Shape, size = "" }: { of: LucideIcon; size?: "s" | "l" | "" }) => (
  <Shape className={`icon ${size}`} aria-hidden="true" />
);

type ButtonProps = Omit<ButtonHTMLAttributes<HTMLButtonElement>, "className"> & {
  kind?: "primary" | "danger" | "danger-fill" | "ghost";
  isSmall?: boolean;
  icon?: LucideIcon;
  /** A button without text. The label is its name. */
  label?: string;
};

/** A button. While `disabled`, it stays in the order of the keyboard and does nothing. */
export function Button({ kind, isSmall, icon, label, children, disabled, onClick, ...rest }: ButtonProps) {
  const names = ["btn", kind, isSmall && "sm", label !== undefined && children === undefined && "square"];
  return (
    <button
      type="button"
      {...rest}
      className={names.filter(Boolean).join(" ")}
      aria-label={label ?? rest["aria-label"]}
      title={label}
      aria-disabled={disabled || undefined}
      onClick={disabled ? (event) => event.preventDefault() : onClick}
    >
      {icon && <Icon of={icon} />}
      {children}
    </button>
  );
}

/** One clock for the whole page. It ticks every second while a part listens and the page can be seen. */
const clock = { now: Date.now(), listeners: new Set<() => void>(), timer: 0 };

function listen(listener: () => void): () => void {
  clock.listeners.add(listener);
  if (clock.listeners.size === 1) {
    clock.now = Date.now();
    clock.timer = window.setInterval(() => {
      if (document.hidden) return;
      clock.now = Date.now();
      for (const one of clock.listeners) one();
    }, 1_000);
  }
  return () => {
    clock.listeners.delete(listener);
    if (clock.listeners.size === 0) clearInterval(clock.timer);
  };
}

/** Returns the time, renewed every second. */
export const useNow = (): number => useSyncExternalStore(listen, () => clock.now);

/** A time, relative up to a day. The exact one is in its title. */
export function Time({ at, as = "relative" }: { at: number; as?: "relative" | "clock" }) {
  // The element is drawn again only if its text changes.
  const text = useSyncExternalStore(listen, () =>
    as === "relative" ? formatRelative(at, clock.now) : formatClock(at, clock.now),
  );
  return (
    <time dateTime={new Date(at).toISOString()} title={formatExact(at)}>
      {text}
    </time>
  );
}

/** An id, shortened in its middle. */
export const Id = ({ id, isWhole = false }: { id: string; isWhole?: boolean }) => (
  <span className="id" title={id}>
    <Visible text={isWhole ? id : shortId(id)} />
  </span>
);

/** The characters at the end of a path that stay visible if the URL does not fit. */
const tailLength = 16;

/**
 * A URL as text: its host first. If it does not fit, its middle is left out, because long URLs differ at
 * their ends. It is never a link, because a stranger may have chosen it.
 */
export function Url({ url }: { url: string }) {
  const { host, path } = splitUrl(url);
  const split = Math.max(0, path.length - tailLength);
  return (
    <span className="t url" title={url}>
      <span className="host">
        <Visible text={host} />
      </span>
      <span className="path middle">
        <Visible text={path.slice(0, split)} />
      </span>
      <span className="path">
        <Visible text={path.slice(split)} />
      </span>
    </span>
  );
}

/** Puts a string on the clipboard. Over plain HTTP, the clipboard of the browser is not there. */
export async function copyText(text: string): Promise<void> {
  if (navigator.clipboard) return navigator.clipboard.writeText(text);
  const area = document.createElement("textarea");
  area.value = text;
  area.className = "vh";
  document.body.append(area);
  area.select();
  // oxlint-disable-next-line typescript/no-deprecated -- the only way over plain HTTP
  document.execCommand("copy");
  area.remove();
}

/** A button that copies a string and says that it did. */
export function CopyButton({
  text,
  children,
  label,
}: {
  text: string | (() => string);
  children?: ReactNode;
  label?: string;
}) {
  const [isDone, setIsDone] = useState(false);
  const copy = (): void => {
    void copyText(typeof text === "string" ? text : text()).then(() => {
      setIsDone(true);
      setTimeout(() => setIsDone(false), 1_500);
    });
  };
  const name = isDone ? "Copied" : (label ?? "Copy");
  return (
    <Button
      isSmall
      kind="ghost"
      icon={isDone ? Check : Copy}
      onClick={copy}
      {...(children === undefined && { label: name })}
    >
      {children === undefined ? undefined : isDone ? "Copied" : children}
    </Button>
  );
}
