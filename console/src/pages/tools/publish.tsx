import { Plus, Send } from "lucide-react";
import type { SyntheticEvent } from "react";
import { useState } from "react";
import { send } from "../../api/client.ts";
import { useMay } from "../../api/session.ts";
import { Button } from "../../parts/basics.tsx";
import type { CodeOf } from "../../parts/codes.tsx";
import { Codes } from "../../parts/codes.tsx";
import { useAction } from "../../parts/dialog.tsx";
import { useFilters } from "../../parts/filters.tsx";
import { Panel } from "../../parts/panel.tsx";
import { Empty, Refused } from "../../parts/trouble.tsx";
import { formatCount } from "../../parts/words.ts";
import { Page } from "../../shell/shell.tsx";
import { Published, readBatch, readRuns } from "./published.tsx";
import type { Result } from "./published.tsx";
import type { Draft, Kind } from "./publishSettings.ts";
import { emptyDraft, toHeaders, toItem, toPublishPath } from "./publishSettings.ts";
import { kinds, OtherSettings, WhereTo } from "./publishFields.tsx";
import { ChangeSchedule } from "./changeSchedule.tsx";

/** Publishes messages, starts runs and creates schedules, and shows the request as code. */
export function PublishPage() {
  const may = useMay();
  const { values } = useFilters();
  const { schedule, kind } = values;
  return (
    <Page title={schedule === undefined ? "Publish" : "Edit schedule"} isLive={false}>
      {!(schedule === undefined ? may.publish : may.manage) ? (
        <Panel>
          <Empty title={`This session cannot ${schedule === undefined ? "publish" : "change schedules"}`}>
            <p>
              Log in with the account’s password, the main token, or a token with the verb{" "}
              {schedule === undefined ? "publish" : "manage"}.
            </p>
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
        <ChangeSchedule key={schedule} id={schedule} />
      )}
    </Page>
  );
}

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
