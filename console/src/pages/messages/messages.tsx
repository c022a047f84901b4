import { useEffect, useState } from "react";
import { useRead } from "../../api/queries.ts";
import { PageLink, PublishLink } from "../../parts/link.tsx";
import type { FilterField } from "../../parts/filters.tsx";
import { FilterBar, useFilters } from "../../parts/filters.tsx";
import { ListPanel } from "../../parts/list.tsx";
import { Loaded } from "../../parts/panel.tsx";
import type { Column } from "../../parts/table.tsx";
import { Empty } from "../../parts/trouble.tsx";
import { formatCount } from "../../parts/words.ts";
import { Button, Time, useNow } from "../../parts/basics.tsx";
import { ActButton, useChosen } from "../../parts/chosen.tsx";
import { MessageCell } from "../../parts/cells.tsx";
import { describeWait } from "./describe.ts";
import { Visible } from "../../parts/visible.tsx";
import { State } from "../../parts/state.tsx";
import { Page, InDrawer } from "../../shell/shell.tsx";
import { MessageBulk } from "./bulk.tsx";
import { MessageDrawer } from "./drawer.tsx";
import { LogList } from "./log.tsx";
import type { Unfinished } from "./states.ts";
import { shapeOf, stateWords } from "./states.ts";
import { HelpFirst, SendNow } from "./help.tsx";
import type { Order } from "../../parts/orderSelect.tsx";
import { oldestFirst, OrderSelect } from "../../parts/orderSelect.tsx";
import { useSteady } from "../../parts/steady.ts";
import { TabCount, tabsClass, useCounts } from "../../parts/tabCount.tsx";

const views = [
  { view: undefined, name: "Unfinished" },
  { view: "DELIVERED", name: "Delivered" },
  { view: "FAILED", name: "Failed" },
  { view: "CANCELLED", name: "Cancelled" },
  { view: "log", name: "All in the log" },
] as const;

const states = ["pending", "retrying", "delivering", "held", "paused"] as const;

/** The orders of the list. A message that waits at a gate has no due time. */
const orders: readonly Order[] = [
  ...oldestFirst,
  { name: "Due next, waiting ones left out", sort: "due" },
  { name: "Due last, waiting ones left out", sort: "due", order: "latestFirst" },
];

/** The filters that the list of unfinished messages and the bulk actions share. */
export const messageFields: readonly FilterField[] = [
  { name: "state", title: "State", options: [...states, "acknowledging"] },
  { name: "gate", title: "Held by", options: ["queue", "key", "endpoint", "account", "capacity"] },
  { name: "label", title: "Label" },
  { name: "queueName", title: "Queue" },
  { name: "flowControlKey", title: "Key" },
  { name: "url", title: "URL", hint: "https://…" },
  { name: "host", title: "Host" },
  { name: "topicName", title: "URL group" },
  { name: "scheduleId", title: "Schedule" },
  { name: "workflowRunId", title: "Run" },
  { name: "messageIds", title: "Id", hint: "msg_…" },
  { name: "callerIP", title: "Caller" },
];

/** Returns how many messages a view has. */
const readCount = (
  { unfinished, ended }: NonNullable<ReturnType<typeof useCounts>["data"]>,
  view: Exclude<(typeof views)[number]["view"], "log">,
) =>
  view === undefined
    ? unfinished
    : { DELIVERED: ended.delivered, FAILED: ended.failed, CANCELLED: ended.cancelled }[view];

/** The messages: unfinished ones with the reason why they wait, and the log of the others. */
export function MessagesPage() {
  const { values, set } = useFilters();
  const { view, open } = values;
  const counts = useCounts();
  return (
    <Page title="Messages">
      <nav className={tabsClass("tabs", counts)} aria-label="State">
        {views.map(({ view: one, name }) => (
          <PageLink key={name} to="/messages" search={{ view: one }}>
            {name}
            {one !== "log" && <TabCount of={counts.data && readCount(counts.data, one)} />}
          </PageLink>
        ))}
      </nav>
      {view === undefined ? <UnfinishedList /> : <LogList view={view} />}
      {open !== undefined && (
        <InDrawer>
          <MessageDrawer
            key={open}
            id={open}
            close={() => set({ open: undefined, cursor: values["cursor"], back: values["back"] })}
          />
        </InDrawer>
      )}
    </Page>
  );
}

function UnfinishedList() {
  const { values, set } = useFilters();
  const { view: _view, open, back: _back, ...query } = values;
  const list = useRead("GET /v2/messages", { query: { count: 50, ...query } });
  const [isActing, setIsActing] = useState(false);
  const chosen = useChosen(JSON.stringify(query));
  const { rows, newCount, showNew } = useSteady(
    list.data?.messages,
    ({ messageId }) => messageId,
    JSON.stringify(query),
  );
  const hasFilter = messageFields.some(({ name }) => values[name] !== undefined);
  useEffect(() => setIsActing(false), [values["view"]]);
  const { total, more } = list.data ?? {};
  return (
    <>
      <StateTabs />
      <div className="toolbar">
        <FilterBar fields={messageFields} fallback="label" placeholder="Filter by label, URL or id" />
        <span className="spring only-wide" />
        <OrderSelect orders={orders} />
        <ActButton chosen={chosen} isActing={isActing} setActing={setIsActing} />
      </div>
      {isActing && (
        <MessageBulk
          key={chosen.ids.join(" ")}
          chosen={chosen.ids}
          close={() => {
            setIsActing(false);
            chosen.clear();
          }}
        />
      )}
      <Loaded query={list} what="The messages">
        {({ cursor }) => (
          <ListPanel
            label="Unfinished messages"
            columns={columns}
            rows={rows}
            keyOf={({ messageId }) => messageId}
            open={({ messageId }) => set({ open: messageId, cursor: values["cursor"], back: values["back"] })}
            openKey={open}
            foot={<ListFoot shown={rows.length} total={total} more={more} />}
            cursor={cursor}
            newCount={newCount}
            showNew={showNew}
            choice={chosen.choice}
            empty={
              <NothingHere
                hasFilter={hasFilter}
                clear={() => set(Object.fromEntries(messageFields.map(({ name }) => [name, undefined])))}
              />
            }
          />
        )}
      </Loaded>
    </>
  );
}

/** One button for each state, with the number of all messages that have it. */
function StateTabs() {
  const { values, set } = useFilters();
  const counts = useCounts();
  return (
    <div className={tabsClass("seg", counts)} role="group" aria-label="Only one state">
      <button
        type="button"
        aria-pressed={values["state"] === undefined}
        onClick={() => set({ state: undefined })}
      >
        All
      </button>
      {states.map((state) => (
        <button
          key={state}
          type="button"
          aria-pressed={values["state"] === state}
          onClick={() => set({ state })}
        >
          {stateWords[state]} <TabCount of={counts.data?.states[state]} />
        </button>
      ))}
    </div>
  );
}

type FootProps = { shown: number; total: number | undefined; more: boolean | undefined };

const ListFoot = ({ shown, total, more }: FootProps) => (
  <>
    <span role="status">
      {formatCount(shown)}
      {total !== undefined && ` of ${formatCount(total)}${more ? " or more" : ""}`}
    </span>
    <span className="only-wide">
      <span className="keys">
        <kbd>j</kbd>
        <kbd>k</kbd>
      </span>{" "}
      to move, <kbd>Enter</kbd> to open, <kbd>x</kbd> to choose
    </span>
  </>
);

const NothingHere = ({ hasFilter, clear }: { hasFilter: boolean; clear(): void }) =>
  hasFilter ? (
    <Empty
      title="No unfinished message matches these filters"
      actions={
        <>
          <PageLink className="btn" to="/messages" search={{ view: "log" }}>
            Search the log
          </PageLink>
          <Button kind="ghost" onClick={clear}>
            Clear filters
          </Button>
        </>
      }
    >
      <p>It may be delivered or failed. Search the log.</p>
    </Empty>
  ) : (
    <Empty title="No unfinished messages" actions={<PublishLink />}>
      <p>Every message is delivered, failed or cancelled. New messages appear here.</p>
    </Empty>
  );

const columns: readonly Column<Unfinished>[] = [
  {
    head: "State",
    className: "c-state w-state",
    cell: ({ state }) => <State state={shapeOf(state)} word={stateWords[state]} />,
  },
  { head: "Message", className: "c-what", cell: (row) => <WhatCell row={row} /> },
  { head: "Why it waits", className: "c-why w-why", cell: (row) => <WhyCell row={row} /> },
  {
    head: "Attempt",
    className: "p3 w-s",
    cell: ({ attempts, maxRetries, responseStatus, waitingOn }) => (
      <>
        <div className="l1">{attempts > maxRetries + 1 ? attempts : `${attempts} of ${maxRetries + 1}`}</div>
        {responseStatus !== undefined && waitingOn?.status === undefined && (
          <div className="l2 code-bad">{responseStatus}</div>
        )}
      </>
    ),
  },
  {
    head: "Due",
    className: "num c-when p3 w-m",
    // The reason says how long it is until then.
    cell: ({ dueAt, createdAt, waitingOn }) => (
      <Time
        at={dueAt ?? createdAt}
        as={/^(?:retry|not-due)$/.test(waitingOn?.reason ?? "") ? "clock" : "relative"}
      />
    ),
  },
];

const WhatCell = ({ row }: { row: Unfinished }) => (
  <MessageCell id={row.messageId} method={row.method} url={row.url} label={row.label}>
    {row.queueName !== undefined && (
      <PageLink className="t" to={`/queues/${encodeURIComponent(row.queueName)}`}>
        queue {row.queueName}
      </PageLink>
    )}
    {row.flowControlKey !== undefined && (
      <PageLink
        className="t"
        to="/keys"
        search={{ search: row.flowControlKey, open: row.flowControlKey }}
        title={row.flowControlKey}
      >
        key <Visible text={row.flowControlKey} />
      </PageLink>
    )}
  </MessageCell>
);

function WhyCell({ row }: { row: Unfinished }) {
  const { waitingOn, error } = row;
  const now = useNow();
  return (
    <div className="why reason">
      <div>
        <div className="l1">
          <span className="t" title={waitingOn?.text}>
            <Visible text={waitingOn ? describeWait(waitingOn, now) : "About to be sent"} />
          </span>
        </div>
        <div className="l2">
          {waitingOn?.status !== undefined && <span className="code-bad">{waitingOn.status}</span>}
          {waitingOn?.position !== undefined && (
            <span className="t">
              {formatCount(waitingOn.position)}
              {waitingOn.more ? "+" : ""} ahead
            </span>
          )}
          {error !== undefined && (
            <span className="t">
              <Visible text={error} />
            </span>
          )}
        </div>
      </div>
      <HelpFirst id={row.messageId} wait={waitingOn} isSmall />
      <SendNow id={row.messageId} wait={waitingOn} isPlain />
    </div>
  );
}
