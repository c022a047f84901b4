import { useNavigate } from "@tanstack/react-router";
import { useEffect, useRef } from "react";
import { Dialog } from "../parts/dialog.tsx";
import { places } from "./places.ts";

/** Reports whether a key is meant for a field and not for the page. */
export const isTyping = (event: KeyboardEvent): boolean =>
  event.target instanceof HTMLElement &&
  event.target.closest("input, textarea, select, [contenteditable], dialog") !== null;

type ShellKeys = { search(): void; help(): void; pause(): void };

/** Listens to the keys that work on every page. */
export function useShellKeys({ search, help, pause }: ShellKeys): void {
  const navigate = useNavigate();
  const isGoing = useRef(false);
  useEffect(() => {
    const act = (event: KeyboardEvent): void => {
      if ((event.metaKey || event.ctrlKey) && event.key.toLowerCase() === "k") {
        event.preventDefault();
        return search();
      }
      if (event.metaKey || event.ctrlKey || event.altKey || isTyping(event)) return;
      if (isGoing.current) {
        isGoing.current = false;
        const page = places.flatMap(({ pages }) => pages).find(({ key }) => key === event.key);
        if (page) void navigate({ to: page.to });
        return;
      }
      if (event.key === "g") {
        isGoing.current = true;
        setTimeout(() => (isGoing.current = false), 1_500);
      } else if (event.key === "?") help();
      else if (event.key === "p") pause();
      else if (event.key === "/") {
        const field = document.querySelector<HTMLInputElement>(".search input");
        if (!field) return;
        event.preventDefault();
        field.focus();
      }
    };
    document.addEventListener("keydown", act);
    return () => document.removeEventListener("keydown", act);
  }, [navigate, search, help, pause]);
}

/** The key that browsers use for commands, as it is printed on the keyboard. */
export const commandKey = /Mac|iP/.test(navigator.platform) ? "⌘" : "Ctrl";

const keys: readonly (readonly [keys: string, does: string])[] = [
  [`${commandKey} K`, "search, or paste an id of any kind"],
  ["/", "filter the list"],
  ["j k", "move in a list, also while a row is open"],
  ["Enter", "open the row"],
  ["x", "choose the row for a bulk action"],
  ["Esc", "close"],
  ["f", "next failure in a timeline"],
  ["p", "pause updates"],
];

/** All keys, in a dialog. */
export const KeyHelp = ({ isOpen, close }: { isOpen: boolean; close(): void }) => (
  <Dialog title="Keys" isOpen={isOpen} close={close}>
    <div className="dialog-body">
      <dl className="kv">
        {keys.map(([pressed, does]) => (
          <KeyRow key={pressed} pressed={pressed} does={does} />
        ))}
        {places
          .flatMap(({ pages }) => pages)
          .map(({ key, name }) => (
            <KeyRow key={name} pressed={`g ${key}`} does={name} />
          ))}
      </dl>
    </div>
  </Dialog>
);

const KeyRow = ({ pressed, does }: { pressed: string; does: string }) => (
  <>
    <dt className="keys">
      {pressed.split(" ").map((one) => (
        <kbd key={one}>{one}</kbd>
      ))}
    </dt>
    <dd>{does}</dd>
  </>
);
