import { useNavigate } from "@tanstack/react-router";
import { CornerDownLeft, Search } from "lucide-react";
import type { KeyboardEvent, MouseEvent } from "react";
import { useEffect, useRef, useState } from "react";
import { Icon } from "../parts/basics.tsx";
import type { SearchParams } from "../parts/filters.tsx";
import { send } from "../api/client.ts";
import { useMay } from "../api/session.ts";
import { toMessage } from "../parts/words.ts";
import type { Choice } from "./lookUp.ts";
import { filterByLabel, findPlaces, toChoices } from "./lookUp.ts";
import { places } from "./places.ts";
import type { Opened, SearchResult } from "./search.ts";
import { useSearch } from "./search.ts";
import { commandKey } from "./shortcuts.tsx";
import { useDo } from "./toasts.tsx";
import { Visible } from "../parts/visible.tsx";

type PaletteProps = { opened: Opened | null; close(): void };

/** The palette: takes an id of any kind, any text, or the name of a page. */
export function Palette({ opened, close }: PaletteProps) {
  const dialog = useRef<HTMLDialogElement>(null);
  useEffect(() => {
    const element = dialog.current;
    if (opened && element && !element.open) element.showModal();
    if (!opened && element?.open) element.close();
  }, [opened]);
  return (
    <dialog
      ref={dialog}
      className="palette"
      aria-label="Search"
      onClose={close}
      onClick={(event) => event.target === dialog.current && close()}
    >
      {opened && <Finder opened={opened} close={close} />}
    </dialog>
  );
}

/** Returns the choices for what was typed. If it was typed into a filter, the filter comes first. */
function listChoices(text: string, result: SearchResult, from: string | undefined): readonly Choice[] {
  const byLabel = text === "" ? [] : [filterByLabel(from ?? "/messages", text, from !== undefined)];
  const found = result.found?.flatMap((one) => toChoices(one, text));
  // An id of a known form is offered until the server has found it.
  const places = findPlaces(text).filter(({ to }) => !found || pagesOnly.has(to));
  const all = [...places, ...(found ?? [])];
  return from === undefined ? [...all, ...byLabel] : [...byLabel, ...all];
}

const pagesOnly: ReadonlySet<string> = new Set(places.flatMap(({ pages }) => pages.map(({ to }) => to)));

function Finder({ opened, close }: PaletteProps & { opened: Opened }) {
  const [typed, setTyped] = useState(opened.text);
  const [at, setAt] = useState(0);
  const navigate = useNavigate();
  const act = useDo();
  const { manage } = useMay();
  const text = typed.trim();
  const result = useSearch(text);
  const choices = listChoices(text, result, opened.from);
  const chosen = Math.min(at, choices.length - 1);
  const picked = choices[chosen];
  const open = (choice: Choice | undefined, isNewTab = false): void => {
    if (!choice) return;
    const { to, search = {}, keepsFilters = false } = choice;
    close();
    if (isNewTab)
      window.open(`${location.origin}${consolePath()}${to.slice(1)}${toQuery(search)}`, "_blank", "noopener");
    else
      void navigate({
        to,
        search: (known: SearchParams) =>
          keepsFilters ? { ...known, cursor: undefined, back: undefined, ...search } : search,
      });
  };
  const retry = ({ dlqId }: Choice): void => {
    if (dlqId === undefined) return;
    close();
    void act(
      () => send("POST /v2/dlq/retry/{dlqId}", { params: { dlqId } }),
      "The message is published again",
    );
  };
  const press = (event: KeyboardEvent): void => {
    const step = { ArrowDown: 1, ArrowUp: -1 }[event.key];
    if (step !== undefined && choices.length > 0) {
      event.preventDefault();
      setAt((chosen + step + choices.length) % choices.length);
    }
    if (event.key !== "Enter") return;
    if (event.shiftKey && picked && manage) retry(picked);
    else if (!event.shiftKey) open(choices[chosen], event.metaKey || event.ctrlKey);
  };
  return (
    <>
      <Field
        typed={typed}
        active={choices.length > 0 ? `found-${chosen}` : undefined}
        type={(value) => {
          setTyped(value);
          setAt(0);
        }}
        press={press}
      />
      <ul id="found" role="listbox" aria-label="Found">
        {choices.map((choice, index) => (
          <Row
            key={`${choice.to} ${choice.name} ${choice.about} ${index}`}
            choice={choice}
            index={index}
            isChosen={index === chosen}
            open={(event) => open(choice, event.metaKey || event.ctrlKey)}
            point={() => setAt(index)}
          />
        ))}
      </ul>
      <Progress result={result} />
      <Hints retry={manage && picked?.dlqId !== undefined ? () => retry(picked) : null} />
    </>
  );
}

type FieldProps = {
  typed: string;
  active: string | undefined;
  type(value: string): void;
  press(event: KeyboardEvent): void;
};

const Field = ({ typed, active, type, press }: FieldProps) => (
  <div className="q">
    <Icon of={Search} />
    <input
      autoFocus
      value={typed}
      maxLength={200}
      onChange={(event) => type(event.target.value)}
      onKeyDown={press}
      placeholder="An id, a URL, a label, a page, or text of a body or error"
      aria-label="Search or paste an id"
      role="combobox"
      aria-expanded="true"
      aria-controls="found"
      aria-activedescendant={active}
    />
    <kbd>Esc</kbd>
  </div>
);

type RowProps = {
  choice: Choice;
  index: number;
  isChosen: boolean;
  open(event: MouseEvent): void;
  point(): void;
};

function Row({ choice, index, isChosen, open, point }: RowProps) {
  const element = useRef<HTMLLIElement>(null);
  useEffect(() => {
    if (isChosen) element.current?.scrollIntoView({ block: "nearest" });
  }, [isChosen]);
  return (
    <li
      ref={element}
      id={`found-${index}`}
      role="option"
      aria-selected={isChosen}
      onClick={open}
      onMouseMove={point}
    >
      <Icon of={choice.icon} />
      <span className="t">{choice.name}</span>
      <span className="sub">
        <Marked text={choice.about} wanted={choice.wanted} />
      </span>
      {isChosen && <Icon of={CornerDownLeft} size="s" />}
    </li>
  );
}

/** Text in which the wanted part is marked. */
function Marked({ text, wanted = "" }: { text: string; wanted?: string | undefined }) {
  const at = wanted === "" ? -1 : text.toLowerCase().indexOf(wanted.toLowerCase());
  if (at < 0) return <Visible text={text} />;
  return (
    <>
      <Visible text={text.slice(0, at)} />
      <mark>
        <Visible text={text.slice(at, at + wanted.length)} />
      </mark>
      <Visible text={text.slice(at + wanted.length)} />
    </>
  );
}

/** How much was searched so far, and a button to continue. */
const Progress = ({ result: { progress, error, more } }: { result: SearchResult }) =>
  progress === "" && error === null ? null : (
    <p className="progress" role="status">
      {error === null ? progress : toMessage(error)}
      {more && (
        <button type="button" className="btn sm" onClick={more}>
          Search further
        </button>
      )}
    </p>
  );

const Hints = ({ retry }: { retry: (() => void) | null }) => (
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
    {retry && (
      <button type="button" className="btn sm" onClick={retry}>
        Retry
        <span className="keys only-wide" aria-hidden="true">
          <kbd>Shift</kbd>
          <kbd>↵</kbd>
        </span>
      </button>
    )}
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
