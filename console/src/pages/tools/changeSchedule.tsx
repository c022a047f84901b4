import { Send } from "lucide-react";
import type { SyntheticEvent } from "react";
import { useState } from "react";
import type { Response } from "../../api/client.ts";
import { send, toPath } from "../../api/client.ts";
import { useRead } from "../../api/queries.ts";
import { Button } from "../../parts/basics.tsx";
import { Codes } from "../../parts/codes.tsx";
import { useAction } from "../../parts/dialog.tsx";
import { Loaded, Panel } from "../../parts/panel.tsx";
import { Refused } from "../../parts/trouble.tsx";
import { Published } from "./published.tsx";
import type { Draft } from "./publishSettings.ts";
import { OtherSettings, WhereTo } from "./publishFields.tsx";
import { compareDrafts, readScheduleDraft } from "./scheduleDraft.ts";

/** The form with everything that a schedule has. Only what the person changes is sent. */
export function ChangeSchedule({ id }: { id: string }) {
  const found = useRead("GET /v2/schedules/{scheduleId}", { params: { scheduleId: id } }, { every: null });
  return (
    <Loaded query={found} what="The schedule">
      {(schedule) => <ChangeForm schedule={schedule} />}
    </Loaded>
  );
}

const route = "PATCH /v2/schedules/{scheduleId}";

function ChangeForm({ schedule }: { schedule: Response<"GET /v2/schedules/{scheduleId}"> }) {
  const [before, setBefore] = useState(() => readScheduleDraft(schedule));
  const [draft, setDraft] = useState(before);
  const [isSaved, setIsSaved] = useState(false);
  const { error, isBusy, run } = useAction();
  const params = { scheduleId: schedule.scheduleId };
  const change = (part: Partial<Draft>): void => {
    setIsSaved(false);
    setDraft((known) => ({ ...known, ...part }));
  };
  const set = (name: string, value: string): void => change({ values: { ...draft.values, [name]: value } });
  const body = compareDrafts(before, draft);
  const isUnchanged = Object.keys(body).length === 0;
  const submit = (event: SyntheticEvent): void => {
    event.preventDefault();
    if (isBusy || isUnchanged) return;
    void run(async () => {
      const saved = readScheduleDraft(await send(route, { params, body }));
      setBefore(saved);
      setDraft(saved);
      setIsSaved(true);
    });
  };
  return (
    <div className="split">
      <form className="panel form" onSubmit={submit}>
        <WhereTo
          draft={draft}
          isChange
          isBinary={schedule.bodyBase64 !== undefined}
          change={change}
          set={set}
        />
        <OtherSettings isChange values={draft.values} set={set} />
        <div className="dialog-body">
          <Refused error={error} />
          {isSaved && <Published results={[{ kind: "schedule", id: schedule.scheduleId }]} />}
          <div className="actions">
            <Button kind="primary" type="submit" icon={Send} disabled={isBusy || isUnchanged}>
              Save schedule
            </Button>
            {isUnchanged && !isSaved && <span className="muted">Nothing has changed yet.</span>}
          </div>
        </div>
      </form>
      <div className="stick">
        <Panel title="As code">
          <div className="body stack">
            <p className="muted">
              Only what you change is sent. Everything else stays, also a pause and the last firing. Redacted
              parts stay redacted.
            </p>
            <Codes
              of={{
                method: "PATCH",
                path: toPath(route, { params }),
                headers: { "Content-Type": "application/json" },
                body: JSON.stringify(body, null, 2),
              }}
            />
          </div>
        </Panel>
      </div>
    </div>
  );
}
