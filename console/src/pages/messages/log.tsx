import { useMemo } from "react";
import { useRead } from "../../api/queries.ts";
import { Time } from "../../parts/basics.tsx";
import { MessageCell, responseColumn } from "../../parts/cells.tsx";
import type { FilterField } from "../../parts/filters.tsx";
import { FilterBar, useFilters } from "../../parts/filters.tsx";
import { ListPanel } from "../../parts/list.tsx";
import { PublishLink } from "../../parts/link.tsx";
import { newestFirst, OrderSelect } from "../../parts/orderSelect.tsx";
import { Loaded } from "../../parts/panel.tsx";
import { State } from "../../parts/state.tsx";
import { useSteady } from "../../parts/steady.ts";
import type { Column } from "../../parts/table.tsx";
import { Empty } from "../../parts/trouble.tsx";
import { decodeBody, formatCount, formatMany, formatSpan } from "../../parts/words.ts";
import { RetryMessage } from "./help.tsx";
import type { LogRow } from "./logRows.ts";
import { findResponse, groupByMessage, listAttempts, listEntries } from "./logRows.ts";
import type { LogEntry } from "./states.ts";
import { logStates } from "./states.ts";

/** The filters of the log. */
export const logFields: readonly FilterField[] = [
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

/** The filters of the list also bound its time. */
const listFields: readonly FilterField[] = [
  ...logFields,
  { name: "fromDate", title: "From", hint: "Unix milliseconds" },
  { name: "toDate", title: "To", hint: "Unix milliseconds" },
];

/** Returns an entry whose response body is text. The log has it as base64. */
const readBody = (entry: LogEntry): LogEntry =>
  entry.responseBody === undefined ? entry : { ...entry, responseBody: decodeBody(entry.responseBody) };

/** Returns the key of an entry. */
const toEntryKey = ({ messageId, time, state }: LogEntry): string => `${messageId} ${time} ${state}`;

/**
 * The log of messages, newest first. A view of one state shows only entries with this state. In the view of
 * all states, the entries of a message are one row, unless the person looks for one message or one state.
 */
export function LogList({ view }: { view: string }) {
  const { values, set } = useFilters();
  const { view: _view, open, back: _back, ...given } = values;
  const query = { ...given, ...(view !== "log" && { state: view }) };
  const log = useRead("GET /v2/logs", { query: { count: view === "log" ? 100 : 50, ...query } });
  const events = useMemo(() => log.data?.events.map(readBody), [log.data]);
  const isGrouped = view === "log" && given["messageId"] === undefined && given["state"] === undefined;
  const { rows: entries, newCount, showNew } = useSteady(events, toEntryKey, JSON.stringify(query));
  const rows = useMemo(
    () => (isGrouped ? groupByMessage(entries) : listEntries(entries)),
    [entries, isGrouped],
  );
  const keyOf = ({ newest }: LogRow): string => (isGrouped ? newest.messageId : toEntryKey(newest));
  const hasFilter = listFields.some(({ name }) => values[name] !== undefined);
  const opened = rows.find(({ newest }) => newest.messageId === open);
  return (
    <>
      <div className="toolbar">
        <FilterBar
          fields={view === "log" ? listFields : listFields.filter(({ name }) => name !== "state")}
          fallback="label"
          placeholder="Filter by label, URL or id"
        />
        <span className="spring only-wide" />
        <OrderSelect orders={newestFirst} />
      </div>
      <Loaded query={log} what="The log">
        {({ cursor }) => (
          <ListPanel
            label="Log of messages"
            columns={isGrouped ? groupColumns : columns}
            rows={rows}
            keyOf={keyOf}
            nameOf={({ newest }) => newest.messageId}
            open={({ newest: { messageId } }) =>
              set({ open: messageId, cursor: values["cursor"], back: values["back"] })
            }
            openKey={opened && keyOf(opened)}
            foot={
              <span role="status">
                {isGrouped && `${formatMany(rows.length, "message")}, `}
                {formatMany(entries.length, "entry", "entries")}
              </span>
            }
            cursor={cursor}
            newCount={newCount}
            showNew={showNew}
            empty={
              hasFilter ? (
                <Empty title="No log entries match">
                  <p>Old entries expire. Remove a filter, or choose another view.</p>
                </Empty>
              ) : (
                <Empty title="No log entries" actions={<PublishLink />}>
                  <p>Each change of a message is an entry. Old entries expire.</p>
                </Empty>
              )
            }
          />
        )}
      </Loaded>
    </>
  );
}

const stateColumn: Column<LogRow> = {
  head: "State",
  className: "c-state w-state",
  cell: ({ newest: { state } }) => <State {...logStates[state]} />,
};
const messageColumn: Column<LogRow> = {
  head: "Message",
  className: "c-what",
  cell: ({ newest: { messageId, method, url, label } }) => (
    <MessageCell id={messageId} method={method} url={url} label={label} />
  ),
};
const responseOf = responseColumn<LogEntry>(({ state }) => state === "DELIVERED");
const rowResponse: Column<LogRow> = {
  head: responseOf.head,
  className: "c-why w-why",
  cell: (row) => (
    <div className="why reason brief">
      <div>{responseOf.cell(findResponse(row))}</div>
      {row.newest.state === "FAILED" && <RetryMessage id={row.newest.messageId} />}
    </div>
  ),
};
const tookColumn: Column<LogRow> = {
  head: "Took",
  className: "num p3 w-s",
  cell: (row) => {
    const [last] = listAttempts(row);
    return last?.attempt && formatSpan(last.attempt.duration);
  },
};
const whenColumn: Column<LogRow> = {
  head: "When",
  className: "num c-when w-m",
  cell: ({ newest }) => <Time at={newest.time} />,
};
const columns: readonly Column<LogRow>[] = [stateColumn, messageColumn, rowResponse, tookColumn, whenColumn];
const groupColumns: readonly Column<LogRow>[] = [
  stateColumn,
  messageColumn,
  { ...rowResponse, className: "c-why w-response" },
  { head: "Attempts", className: "num p3 w-s", cell: (row) => formatCount(listAttempts(row).length) },
  tookColumn,
  whenColumn,
];
