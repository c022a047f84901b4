import { Plus, Send } from "lucide-react";
import type { SyntheticEvent } from "react";
import { useState } from "react";
import { send } from "../../api/client.ts";
import { useRead } from "../../api/queries.ts";
import { useMay } from "../../api/session.ts";
import { Button } from "../../parts/basics.tsx";
import type { CodeOf } from "../../parts/codes.tsx";
import { Codes } from "../../parts/codes.tsx";
import { Field, useAction } from "../../parts/dialog.tsx";
import { useFilters } from "../../parts/filters.tsx";
import { Loaded, Panel } from "../../parts/panel.tsx";
import { Empty, Refused } from "../../parts/trouble.tsx";
import { formatCount } from "../../parts/words.ts";
import { Page } from "../../shell/shell.tsx";
import { Published, readBatch, readRuns } from "./published.tsx";
import type { Result } from "./published.tsx";
import type { Draft, Kind } from "./publishSettings.ts";
import {
  emptyDraft,
  headerSettings,
  messageGroups,
  runSettings,
  scheduleSettings,
  toHeaders,
  toItem,
  toPublishPath,
} from "./publishSettings.ts";
import { readScheduleDraft } from "./scheduleDraft.ts";
import { CallbackFields, methods, SettingFields } from "./settingFields.tsx";

/** Publishes messages, starts runs and creates schedules, and shows the request as code. */
export function PublishPage() {
  const may = useMay();
  const { values } = useFilters();
  const { schedule, kind } = values;
  return (
    <Page title="Publish" isLive={false}>
      {!may.publish ? (
        <Panel>
          <Empty title="This session cannot publish">
            <p>Log in with the account’s password, the main token, or a token with the verb publish.</p>
          </Empty>
        </Panel>
      ) : schedule === undefined ? (
        <PublishForm
          key={kind}
          initial={{
            ...emptyDraft,
            kind: kinds.some((one) => one.kind === kind) ? (kind as Kind) : "message",
          }}
        />
      ) : (
        <EditSchedule key={schedule} id={schedule} />
      )}
    </Page>
  );
}

/** The form with the settings of a schedule, which is replaced. */
function EditSchedule({ id }: { id: string }) {
  const found = useRead("GET /v2/schedules/{scheduleId}", { params: { scheduleId: id } }, { every: null });
  return (
    <Loaded query={found} what="The schedule">
      {(schedule) => (
        <>
          <section className="callout info">
            <span />
            <p>
              Saving replaces the schedule. Set these again if it has them, because the API does not show
              them: the timeout, deduplication, redaction, and the settings of its callbacks.
            </p>
          </section>
          <PublishForm initial={readScheduleDraft(schedule)} />
        </>
      )}
    </Loaded>
  );
}

const kinds: readonly { kind: Kind; name: string; verb: string }[] = [
  { kind: "message", name: "Message", verb: "Publish" },
  { kind: "run", name: "Run of a workflow", verb: "Start run" },
  { kind: "schedule", name: "Schedule", verb: "Save schedule" },
];

function PublishForm({ initial }: { initial: Draft }) {
  const [draft, setDraft] = useState(initial);
  const [batch, setBatch] = useState<readonly Draft[]>([]);
  const { error, isBusy, run } = useAction();
  const [results, setResults] = useState<readonly Result[]>([]);
  const set = (name: string, value: string): void =>
    setDraft((known) => ({ ...known, values: { ...known.values, [name]: value } }));
  const submit = (event: SyntheticEvent): void => {
    event.preventDefault();
    setResults([]);
    if (!isBusy)
      void run(async () => {
        setResults(await publishDrafts([...batch, draft]));
        setBatch([]);
      });
  };
  return (
    <div className="split">
      <form className="panel form" onSubmit={submit}>
        <WhereTo
          draft={draft}
          isBatch={batch.length > 0}
          change={(part) => setDraft((known) => ({ ...known, ...part }))}
          set={set}
        />
        <OtherSettings values={draft.values} set={set} />
        <div className="dialog-body">
          <Refused error={error} />
          <Published results={results} />
          <Buttons draft={draft} batch={batch} setBatch={setBatch} isBusy={isBusy} />
        </div>
      </form>
      <div className="stick">
        <Panel title="As code">
          <div className="body">
            <Codes of={toCode([...batch, draft])} />
          </div>
        </Panel>
      </div>
    </div>
  );
}

/** The settings that every kind has. */
const OtherSettings = ({ values, set }: Pick<WhereToProps, "set"> & Pick<Draft, "values">) => (
  <>
    {messageGroups.map(({ title, about, settings }) => (
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

type ButtonsProps = {
  draft: Draft;
  batch: readonly Draft[];
  setBatch(batch: readonly Draft[]): void;
  isBusy: boolean;
};

function Buttons({ draft, batch, setBatch, isBusy }: ButtonsProps) {
  const verb = kinds.find(({ kind }) => kind === draft.kind)?.verb ?? "";
  return (
    <div className="actions">
      {draft.kind !== "schedule" && (
        <Button icon={Plus} disabled={draft.destination === ""} onClick={() => setBatch([...batch, draft])}>
          Add to batch
        </Button>
      )}
      {batch.length > 0 && <Button onClick={() => setBatch([])}>Empty the batch</Button>}
      <Button kind="primary" type="submit" icon={Send} disabled={isBusy}>
        {batch.length === 0 ? verb : `${verb}: ${formatCount(batch.length + 1)}`}
      </Button>
    </div>
  );
}

/** Returns the request that publishes the drafts. Several are a batch. */
function toCode(drafts: readonly Draft[]): CodeOf {
  const [draft] = drafts;
  if (draft && drafts.length === 1)
    return {
      method: "POST",
      path: toPublishPath(draft),
      headers: toHeaders(draft),
      ...(draft.body !== "" && { body: draft.body }),
    };
  return {
    method: "POST",
    path: draft?.kind === "run" ? "/v2/batch/trigger" : "/v2/batch",
    headers: { "Content-Type": "application/json" },
    body: JSON.stringify(drafts.map(toItem), null, 2),
  };
}

/** Publishes the messages, starts the runs, or saves the schedule. */
async function publishDrafts(drafts: readonly Draft[]): Promise<readonly Result[]> {
  const [draft] = drafts;
  if (!draft) return [];
  const { kind, destination, body } = draft;
  if (kind === "schedule") {
    const headers = toHeaders(draft);
    const params = { destination };
    const { scheduleId } = await send("POST /v2/schedules/{destination}", { params, headers, body });
    return [{ kind: "schedule", id: scheduleId }];
  }
  const items = drafts.map(toItem);
  return kind === "run"
    ? readRuns(await send("POST /v2/batch/trigger", { body: items }))
    : readBatch(await send("POST /v2/batch", { body: items }));
}

type WhereToProps = {
  draft: Draft;
  /** Whether the kind stays, because all items of a batch have one kind. */
  isBatch: boolean;
  change(part: Partial<Draft>): void;
  set(name: string, value: string): void;
};

function WhereTo({ draft, isBatch, change, set }: WhereToProps) {
  const queues = useRead("GET /v2/queues", {}, { every: null });
  const { kind, values } = draft;
  const own = { message: [], run: runSettings, schedule: scheduleSettings }[kind];
  return (
    <fieldset>
      <legend>
        Where to
        <small>{kind === "run" ? "the URL of the workflow" : "a URL, or the name of a URL group"}</small>
      </legend>
      <div className="fields">
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
        <Destination draft={draft} change={change} />
        <SettingFields settings={own} values={values} set={set} />
        <Field name="Body">
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
              {queues.data?.map(({ name }) => (
                <option key={name}>{name}</option>
              ))}
            </select>
          </Field>
        )}
        <SettingFields settings={headerSettings} values={values} set={set} />
      </div>
    </fieldset>
  );
}

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
