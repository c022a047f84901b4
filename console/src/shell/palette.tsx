import { useNavigate } from "@tanstack/react-router";
import { CornerDownLeft, Search } from "lucide-react";
import type { KeyboardEvent } from "react";
import { useEffect, useRef, useState } from "react";
import { Icon } from "../parts/basics.tsx";
import type { Choice } from "./lookUp.ts";
import { findPlaces } from "./lookUp.ts";
import { commandKey } from "./shortcuts.tsx";
import { Visible } from "../parts/visible.tsx";

/** The palette: takes a pasted id of any kind, or the name of a page, a queue or a key. */
export function Palette({ isOpen, close }: { isOpen: boolean; close(): void }) {
  const dialog = useRef<HTMLDialogElement>(null);
  useEffect(() => {
    const element = dialog.current;
    if (isOpen && element && !element.open) element.showModal();
    if (!isOpen && element?.open) element.close();
  }, [isOpen]);
  return (
    <dialog
      ref={dialog}
      className="palette"
      aria-label="Search"
      onClose={close}
      onClick={(event) => event.target === dialog.current && close()}
    >
      {isOpen && <Finder close={close} />}
    </dialog>
  );
}

function Finder({ close }: { close(): void }) {
  const [text, setText] = useState("");
  const [at, setAt] = useState(0);
  const navigate = useNavigate();
  const found = findPlaces(text);
  const chosen = Math.min(at, found.length - 1);
  const open = (choice: Choice | undefined, isNewTab = false): void => {
    if (!choice) return;
    const { to, search = {} } = choice;
    close();
    if (isNewTab)
      window.open(`${location.origin}${consolePath()}${to.slice(1)}${toQuery(search)}`, "_blank", "noopener");
    else void navigate({ to, search });
  };
  const press = (event: KeyboardEvent): void => {
    const step = { ArrowDown: 1, ArrowUp: -1 }[event.key];
    if (step !== undefined && found.length > 0) {
      event.preventDefault();
      setAt((chosen + step + found.length) % found.length);
    }
    if (event.key === "Enter") open(found[chosen], event.metaKey || event.ctrlKey);
  };
  return (
    <>
      <div className="q">
        <Icon of={Search} />
        <input
          autoFocus
          value={text}
          onChange={(event) => {
            setText(event.target.value);
            setAt(0);
          }}
          onKeyDown={press}
          placeholder="An id, a URL, a label, or the name of a page"
          aria-label="Search or paste an id"
          role="combobox"
          aria-expanded="true"
          aria-controls="found"
          aria-activedescendant={found.length > 0 ? `found-${chosen}` : undefined}
        />
        <kbd>Esc</kbd>
      </div>
      <ul id="found" role="listbox" aria-label="Found">
        {found.map((choice, index) => (
          <li
            key={`${choice.to} ${choice.name}`}
            id={`found-${index}`}
            role="option"
            aria-selected={index === chosen}
            onClick={(event) => open(choice, event.metaKey || event.ctrlKey)}
            onMouseMove={() => setAt(index)}
          >
            <Icon of={choice.icon} />
            <span className="t">{choice.name}</span>
            <span className="sub">
              <Visible text={choice.about} />
            </span>
            {index === chosen && <Icon of={CornerDownLeft} size="s" />}
          </li>
        ))}
      </ul>
      <Hints />
    </>
  );
}

const Hints = () => (
  <footer>
    <span>
      <span className="keys">
        <kbd>↑</kbd>
        <kbd>↓</kbd>
      </span>
      choose
    </span>
    <span>
      <kbd>↵</kbd> open
    </span>
    <span className="only-wide">
      <span className="keys">
        <kbd>{commandKey}</kbd>
        <kbd>↵</kbd>
      </span>
      open in a new tab
    </span>
  </footer>
);

const consolePath = (): string =>
  new URL("../", import.meta.env.DEV ? location.href : import.meta.url).pathname;
const toQuery = (search: Record<string, string>): string => {
  const query = new URLSearchParams(search);
  return query.size === 0 ? "" : `?${query}`;
};
