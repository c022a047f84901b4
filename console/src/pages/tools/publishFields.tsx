import { useRead } from "../../api/queries.ts";
import { Field } from "../../parts/dialog.tsx";
import type { Draft, Kind } from "./publishSettings.ts";
import {
  atCreation,
  headerSettings,
  messageGroups,
  runSettings,
  scheduleSettings,
} from "./publishSettings.ts";
import { CallbackFields, methods, SettingFields } from "./settingFields.tsx";

/** The kinds of what is published, with the button of each. */
export const kinds: readonly { kind: Kind; name: string; verb: string }[] = [
  { kind: "message", name: "Message", verb: "Publish" },
  { kind: "run", name: "Run of a workflow", verb: "Start run" },
  { kind: "schedule", name: "Schedule", verb: "Save schedule" },
];

type WhereToProps = {
  draft: Draft;
  /** Whether the kind stays, because all items of a batch have one kind. */
  isBatch?: boolean;
  /** Whether a schedule is changed, whose kind and id stay. */
  isChange?: boolean;
  /** Whether the body that is replaced is not text, so that the form does not show it. */
  isBinary?: boolean;
  change(part: Partial<Draft>): void;
  set(name: string, value: string): void;
};

/** Where it goes, and what is delivered. */
export function WhereTo(props: WhereToProps) {
  const { draft, isBatch = false, isChange = false, isBinary = false, change, set } = props;
  const queues = useRead("GET /v2/queues", {}, { every: null });
  const { kind, values } = draft;
  const own = { message: [], run: runSettings, schedule: scheduleSettings }[kind];
  const pick = (settings: typeof own) =>
    isChange ? settings.filter(({ name }) => !atCreation.has(name)) : settings;
  return (
    <fieldset>
      <legend>
        Where to
        <small>{kind === "run" ? "the URL of the workflow" : "a URL, or the name of a URL group"}</small>
      </legend>
      <div className="fields">
        {!isChange && (
          <div className="seg" role="group" aria-label="What to publish">
            {kinds.map(({ kind: one, name }) => (
              <button
                key={one}
                type="button"
                aria-pressed={one === kind}
                aria-disabled={isBatch || undefined}
                onClick={() => !isBatch && change({ kind: one })}
              >
                {name}
              </button>
            ))}
          </div>
        )}
        <Destination draft={draft} change={change} />
        <SettingFields settings={pick(own)} values={values} set={set} />
        <Field name="Body" hint={isBinary ? "The body is not text. Your input replaces it." : undefined}>
          <textarea
            className="input"
            rows={6}
            spellCheck={false}
            value={draft.body}
            onChange={(event) => change({ body: event.target.value })}
          />
        </Field>
        <Field name="Content type" className="h3">
          <input
            className="input mono"
            value={draft.type}
            onChange={(event) => change({ type: event.target.value })}
          />
        </Field>
        {kind !== "run" && (
          <Field name="Queue" className="h3">
            <select
              className="input"
              value={draft.queue}
              onChange={(event) => change({ queue: event.target.value })}
            >
              <option value="">none</option>
              {listQueues(queues.data ?? [], draft.queue).map((name) => (
                <option key={name}>{name}</option>
              ))}
            </select>
          </Field>
        )}
        <SettingFields settings={pick(headerSettings)} values={values} set={set} />
      </div>
    </fieldset>
  );
}

/** Returns the names of all queues, with that of the draft. The first message to a queue creates it. */
const listQueues = (queues: readonly { name: string }[], chosen: string): string[] => [
  ...new Set([...queues.map(({ name }) => name), chosen].filter((name) => name !== "")),
];

type DestinationProps = Pick<WhereToProps, "draft" | "change">;

const Destination = ({ draft: { method, destination }, change }: DestinationProps) => (
  <div className="field">
    <span className="label">Destination</span>
    <div className="joined">
      <select
        className="input fit"
        aria-label="Method"
        value={method}
        onChange={(event) => change({ method: event.target.value })}
      >
        {methods.map((one) => (
          <option key={one}>{one}</option>
        ))}
      </select>
      <input
        className="input mono"
        aria-label="Destination"
        placeholder="https://example.com/hook"
        value={destination}
        onChange={(event) => change({ destination: event.target.value })}
        required
      />
    </div>
  </div>
);

type OtherProps = Pick<WhereToProps, "isChange" | "set"> & Pick<Draft, "values">;

/** The settings that every kind has. A change of a schedule has those that can be changed. */
export const OtherSettings = ({ values, isChange = false, set }: OtherProps) => (
  <>
    {listGroups(isChange).map(({ title, about, settings }) => (
      <fieldset key={title}>
        <legend>
          {title}
          <small>{about}</small>
        </legend>
        <div className="fields">
          <SettingFields settings={settings} values={values} set={set} />
        </div>
      </fieldset>
    ))}
    <fieldset>
      <legend>
        Callbacks<small>each has its own settings</small>
      </legend>
      <div className="fields">
        <CallbackFields values={values} set={set} />
      </div>
    </fieldset>
  </>
);

/** Returns the groups of settings, with those that can be changed. */
const listGroups = (isChange: boolean): typeof messageGroups =>
  isChange
    ? messageGroups
        .map((group) => ({ ...group, settings: group.settings.filter(({ name }) => !atCreation.has(name)) }))
        .filter(({ settings }) => settings.length > 0)
    : messageGroups;
