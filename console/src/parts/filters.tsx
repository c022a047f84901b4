import { useLocation, useNavigate, useSearch } from "@tanstack/react-router";
import { Plus, Search, X } from "lucide-react";
import type { SyntheticEvent } from "react";
import { use, useState } from "react";
import { Icon } from "./basics.tsx";
import { PopButton } from "./popButton.tsx";
import { SavedMenu } from "./savedMenu.tsx";
import { SearchContext } from "../shell/search.ts";
import { readField } from "./words.ts";
import { Visible } from "./visible.tsx";

/** The search parameters of a page: texts, so that every filter is in its address. */
export type SearchParams = Readonly<Record<string, string | undefined>>;

/** The filters of a page, which are in its address, and how to change them. */
export type Filters = {
  values: SearchParams;
  /** Sets filters; undefined removes one. The cursor is removed unless it is set. */
  set(change: SearchParams): void;
};

/** Returns the filters in the address of the page. */
export function useFilters(): Filters {
  const values: SearchParams = useSearch({ strict: false });
  const navigate = useNavigate();
  return {
    values,
    set: (change) =>
      void navigate({
        to: ".",
        search: (known: SearchParams) => ({ ...known, cursor: undefined, back: undefined, ...change }),
        resetScroll: false,
      }),
  };
}

/** A filter that a page has: its parameter and its name for people. */
export type FilterField = { name: string; title: string; hint?: string; options?: readonly string[] };

/** Returns the parameter that a string is meant for: an id, a URL, or else the page's own default. */
const guessField = (text: string, fields: readonly FilterField[], fallback: string): string => {
  const has = (name: string): boolean => fields.some((field) => field.name === name);
  if (text.startsWith("msg_") && has("messageId")) return "messageId";
  if (text.startsWith("msg_") && has("messageIds")) return "messageIds";
  if (/^https?:\/\//.test(text) && has("url")) return "url";
  return fallback;
};

/** The filter bar: a field that takes a string, and the filters that are set. */
export function FilterBar({
  fields,
  fallback,
  placeholder,
  words = {},
}: {
  fields: readonly FilterField[];
  fallback: string;
  placeholder: string;
  /** The words for values that no person can read, by the name of the field. */
  words?: SearchParams;
}) {
  const { values, set } = useFilters();
  const search = use(SearchContext);
  const { pathname } = useLocation();
  const [text, setText] = useState("");
  const submit = (event: SyntheticEvent): void => {
    event.preventDefault();
    const given = text.trim();
    const [, named, value] = /^(\w+):\s*(.+)$/.exec(given) ?? [];
    const field =
      named !== undefined ? fields.find(({ name }) => name.toLowerCase() === named.toLowerCase()) : undefined;
    const name = field?.name ?? guessField(given, fields, fallback);
    // The string may be in any field. The search shows where it is, and can filter the list by it as a label.
    if (given !== "" && name === "label" && !field) search(given, pathname);
    else if (given !== "") set({ [name]: field ? value : given });
    setText("");
  };
  const shown = fields.filter(({ name }) => values[name] !== undefined);
  return (
    <>
      <form className="search" role="search" onSubmit={submit}>
        <Icon of={Search} />
        <input
          className="input"
          type="search"
          aria-label="Filter"
          placeholder={placeholder}
          value={text}
          onChange={(event) => setText(event.target.value)}
        />
        <kbd aria-hidden="true">/</kbd>
      </form>
      {shown.map(({ name, title }) => (
        <span key={name} className="filter">
          <span className="k">{title}</span>
          <span className="v" title={words[name] ?? values[name]}>
            <Visible text={words[name] ?? values[name] ?? ""} />
          </span>
          <button
            type="button"
            aria-label={`Remove the filter ${title}`}
            onClick={() => set({ [name]: undefined })}
          >
            <Icon of={X} size="s" />
          </button>
        </span>
      ))}
      <AddFilter fields={fields.filter(({ name }) => values[name] === undefined)} set={set} />
      <SavedMenu values={values} />
    </>
  );
}

type AddFilterProps = { fields: readonly FilterField[]; set: Filters["set"] };

/** Adds a filter by its name and its value. */
const AddFilter = ({ fields, set }: AddFilterProps) =>
  fields.length === 0 ? null : (
    <PopButton icon={Plus} text="Filter">
      {(close) => <FilterForm fields={fields} set={set} close={close} />}
    </PopButton>
  );

function FilterForm({ fields, set, close }: AddFilterProps & { close(): void }) {
  const [name, setName] = useState("");
  const field = fields.find((one) => one.name === name) ?? fields[0];
  if (!field) return null;
  const submit = (event: SyntheticEvent<HTMLFormElement>): void => {
    event.preventDefault();
    const value = readField(new FormData(event.currentTarget), "value").trim();
    if (value !== "") set({ [field.name]: value });
    close();
  };
  return (
    <form className="pop" onSubmit={submit}>
      <label className="field">
        <span className="label">By</span>
        <select
          className="input"
          value={field.name}
          onChange={(event) => setName(event.target.value)}
          autoFocus
        >
          {fields.map((one) => (
            <option key={one.name} value={one.name}>
              {one.title}
            </option>
          ))}
        </select>
      </label>
      <label className="field">
        <span className="label">Value</span>
        {field.options ? (
          <select className="input" name="value" key={field.name}>
            {field.options.map((one) => (
              <option key={one}>{one}</option>
            ))}
          </select>
        ) : (
          <input className="input" name="value" key={field.name} placeholder={field.hint} />
        )}
      </label>
      <button className="btn primary sm" type="submit">
        Add
      </button>
    </form>
  );
}

/** Next and previous pages of a list with a cursor. The cursors so far are in the address. */
export function Pager({ cursor }: { cursor: string | undefined }) {
  const { values, set } = useFilters();
  const back = values["back"]?.split("~") ?? [];
  return (
    <span className="end actions">
      {values["cursor"] !== undefined && (
        <button
          type="button"
          className="btn sm"
          onClick={() =>
            set({ cursor: back.at(-1) || undefined, back: back.slice(0, -1).join("~") || undefined })
          }
        >
          Previous
        </button>
      )}
      {cursor !== undefined && (
        <button
          type="button"
          className="btn sm"
          onClick={() => set({ cursor, back: [...back, values["cursor"] ?? ""].join("~") })}
        >
          Next
        </button>
      )}
    </span>
  );
}
