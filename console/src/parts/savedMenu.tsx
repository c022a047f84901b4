import { useLocation, useNavigate } from "@tanstack/react-router";
import { Bookmark, Trash2 } from "lucide-react";
import type { SyntheticEvent } from "react";
import { useState } from "react";
import { useSession } from "../api/session.ts";
import { Button } from "./basics.tsx";
import { showHidden } from "./hidden.ts";
import { PopButton } from "./popButton.tsx";
import type { SavedFilter } from "./savedFilters.ts";
import { addFilter, maxNameLength, pickFilter, readSavedFilters, writeSavedFilters } from "./savedFilters.ts";
import { Visible } from "./visible.tsx";
import { readField } from "./words.ts";

/** The parameters of the page. */
type Shown = Readonly<Record<string, string | undefined>>;

/** The filters that a person has saved for the page, in this browser and for the account. */
export function SavedMenu({ values }: { values: Shown }) {
  const { session } = useSession();
  const { pathname } = useLocation();
  const place = { account: session.account?.id ?? "", page: pathname };
  return (
    <PopButton key={`${place.account} ${place.page}`} icon={Bookmark} text="Saved">
      {(close) => <SavedFilters place={place} values={values} close={close} />}
    </PopButton>
  );
}

/** Throws where the browser blocks storage, so that only a reader that expects it may call it. */
const storage = (): Storage => localStorage;

type SavedFiltersProps = { place: { account: string; page: string }; values: Shown; close(): void };

function SavedFilters({ place, values, close }: SavedFiltersProps) {
  const navigate = useNavigate();
  const [saved, setSaved] = useState(() => readSavedFilters(storage, place.account, place.page));
  const [problem, setProblem] = useState<string | null>(null);
  const shown = pickFilter(values);
  const keep = (next: readonly SavedFilter[] | null): void => {
    if (next === null) return setProblem("There are too many. Delete one first.");
    if (!writeSavedFilters(storage, place, next)) return setProblem("This browser keeps nothing.");
    setProblem(null);
    setSaved(next);
  };
  const submit = (event: SyntheticEvent<HTMLFormElement>): void => {
    event.preventDefault();
    const name = readField(new FormData(event.currentTarget), "name").trim();
    if (name !== "" && shown) keep(addFilter(saved, { name, search: shown }));
    event.currentTarget.reset();
  };
  const open = ({ search }: SavedFilter): void => {
    void navigate({ to: ".", search });
    close();
  };
  return (
    <div className="pop saved">
      {saved.length === 0 && <p className="muted">No saved filters of this page.</p>}
      <ul>
        {saved.map((one) => (
          <li key={one.name}>
            <button type="button" className="btn sm ghost" onClick={() => open(one)}>
              <span className="t">
                <Visible text={one.name} />
              </span>
            </button>
            <Button
              isSmall
              kind="ghost"
              icon={Trash2}
              label={`Delete the filter ${showHidden(one.name)}`}
              onClick={() => keep(saved.filter(({ name }) => name !== one.name))}
            />
          </li>
        ))}
      </ul>
      {shown ? (
        <form onSubmit={submit}>
          <input
            className="input"
            name="name"
            aria-label="Name of the present filter"
            placeholder="Name of the present filter"
            maxLength={maxNameLength}
            autoFocus
            required
          />
          <button className="btn primary sm" type="submit">
            Save
          </button>
        </form>
      ) : (
        <p className="muted">Set a filter to save it.</p>
      )}
      {problem !== null && (
        <p className="error" role="alert">
          {problem}
        </p>
      )}
    </div>
  );
}
