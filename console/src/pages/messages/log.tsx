import { useRead } from "../../api/queries.ts";
import { Id, Time, Url } from "../../parts/basics.tsx";
import type { FilterField } from "../../parts/filters.tsx";
import { FilterBar, Pager, useFilters } from "../../parts/filters.tsx";
import { Loaded, Panel } from "../../parts/panel.tsx";
import { Visible } from "../../parts/payload.tsx";
import { State } from "../../parts/state.tsx";
import { useSteady } from "../../parts/steady.ts";
import type { Column } from "../../parts/table.tsx";
import { Table } from "../../parts/table.tsx";
import { Empty } from "../../parts/trouble.tsx";
import { formatMany } from "../../parts/words.ts";
import type { LogEntry } from "./states.ts";
import { logStates } from "./states.ts";

const fields: readonly FilterField[] = [
  { name: "messageId", title: "Message", hint: "msg_…" },
  { name: "label", title: "Label" },
  { name: "url", title: "URL", hint: "https://…" },
  { name: "host", title: "Host" },
  { name: "path", title: "Path" },
  { name: "queueName", title: "Queue" },
  { name: "flowControlKey", title: "Key" },
  { name: "topicName", title: "URL group" },
  { name: "scheduleId", title: "Schedule" },
  { name: "callerIP", title: "Caller" },
  { name: "state", title: "State", options: Object.keys(logStates) },
];

/** Returns what tells two entries apart. */
const keyOf = ({ messageId, time, state }: LogEntry): string => `${messageId} ${time} ${state}`;

/** The log: what happened to messages, latest first. A view of one state shows only its entries. */
export function LogList({ view }: { view: string }) {
  const { values, set } = useFilters();
  const { view: _view, open, back: _back, ...given } = values;
  const query = { ...given, ...(view !== "log" && { state: view }) };
  const log = useRead("GET /v2/logs", { query: { count: 50, ...query } });
  const { rows, newCount, showNew } = useSteady(log.data?.events, keyOf, JSON.stringify(query));
  return (
    <>
      <div className="toolbar">
        <FilterBar
          fields={view === "log" ? fields : fields.filter(({ name }) => name !== "state")}
          fallback="label"
          placeholder="Filter by label, URL or id"
        />
      </div>
      <Loaded query={log} what="The log">
        {(data) => (
          <Panel
            footer={
              <>
                <span>{formatMany(rows.length, "entry", "entries")}</span>
                <Pager cursor={data.cursor} />
              </>
            }
          >
            {newCount > 0 && (
              <button type="button" className="newbar" onClick={showNew}>
                {newCount} new
              </button>
            )}
            {rows.length === 0 ? (
              <Empty title="The log has no such entry">
                <p>It keeps entries for some days. Try fewer filters, or another view.</p>
              </Empty>
            ) : (
              <Table
                label="Log of messages"
                className="two cards"
                columns={columns}
                rows={rows}
                keyOf={keyOf}
                open={({ messageId }) =>
                  set({ open: messageId, cursor: values["cursor"], back: values["back"] })
                }
                openKey={
                  rows.find(({ messageId }) => messageId === open) &&
                  keyOf(rows.find(({ messageId }) => messageId === open) as LogEntry)
                }
              />
            )}
          </Panel>
        )}
      </Loaded>
    </>
  );
}

const columns: readonly Column<LogEntry>[] = [
  { head: "State", className: "c-state w-state", cell: ({ state }) => <State {...logStates[state]} /> },
  {
    head: "Message",
    className: "c-what",
    cell: ({ messageId, method, url, label }) => (
      <>
        <div className="l1">
          <span className="method">{method}</span>
          <Url url={url} />
        </div>
        <div className="l2">
          <Id id={messageId} />
          {label !== undefined && <span className="t">{label}</span>}
        </div>
      </>
    ),
  },
  {
    head: "Answer",
    className: "c-why w-why",
    cell: ({ responseStatus, error, responseBody, state }) => (
      <>
        <div className="l1">
          {responseStatus !== undefined && (
            <b className={state === "DELIVERED" ? undefined : "code-bad"}>{responseStatus}</b>
          )}
          <span className="t">
            <Visible text={(error ?? "").slice(0, 200)} />
          </span>
        </div>
        <div className="l2">
          <span className="t">
            <Visible text={(responseBody ?? "").slice(0, 200)} />
          </span>
        </div>
      </>
    ),
  },
  { head: "When", className: "num c-when w-m", cell: ({ time }) => <Time at={time} /> },
];
