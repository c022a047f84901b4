import type { Change } from "../../operations/jobs/bulk.tsx";
import { Field } from "../../parts/dialog.tsx";
import { readPairs } from "../../parts/words.ts";

/** What changes in many dead letters, as texts. Empty texts change nothing. */
export type ChangeDraft = { url: string; headers: string; patch: string };

/** Returns the change, or why it cannot be read. */
export function readChange({ url, headers, patch }: ChangeDraft): Change | string {
  const change: Change = {
    ...(url.trim() !== "" && { url: url.trim() }),
    ...(headers.trim() !== "" && { headers: readPairs(headers) }),
  };
  if (patch.trim() === "") return change;
  try {
    const operations: unknown = JSON.parse(patch);
    if (!Array.isArray(operations)) return "The JSON patch is not a list of operations.";
    return { ...change, jsonPatch: operations as NonNullable<Change["jsonPatch"]> };
  } catch {
    return "The JSON patch is not valid JSON.";
  }
}

/** The fields of a change of many dead letters. */
export function ChangeFields({ draft, set }: { draft: ChangeDraft; set(draft: ChangeDraft): void }) {
  return (
    <>
      <Field name="New URL" isOptional>
        <input
          className="input mono"
          type="url"
          value={draft.url}
          onChange={(event) => set({ ...draft, url: event.target.value })}
        />
      </Field>
      <Field name="Headers" isOptional hint="One per line. They replace headers of the same name.">
        <textarea
          className="input mono"
          rows={2}
          spellCheck={false}
          value={draft.headers}
          onChange={(event) => set({ ...draft, headers: event.target.value })}
        />
      </Field>
      <Field
        name="JSON patch of the body"
        isOptional
        hint={'Such as [{"op": "replace", "path": "/version", "value": 2}]'}
      >
        <textarea
          className="input mono"
          rows={3}
          spellCheck={false}
          value={draft.patch}
          onChange={(event) => set({ ...draft, patch: event.target.value })}
        />
      </Field>
    </>
  );
}
