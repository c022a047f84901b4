import type { Response } from "../../api/client.ts";
import { send } from "../../api/client.ts";
import { useRead } from "../../api/queries.ts";
import { PauseButton } from "../../parts/actions.tsx";
import { FilterBar, useFilters } from "../../parts/filters.tsx";
import { ListPanel } from "../../parts/list.tsx";
import { PublishLink } from "../../parts/link.tsx";
import { Loaded } from "../../parts/panel.tsx";
import { State } from "../../parts/state.tsx";
import type { Column } from "../../parts/table.tsx";
import { Empty } from "../../parts/trouble.tsx";
import { formatCount, formatMany, formatSpan } from "../../parts/words.ts";
import { Page } from "../../shell/shell.tsx";
import { KeyDialog } from "./keyDialog.tsx";
import { Visible } from "../../parts/visible.tsx";

type Key = Response<"GET /v2/flowControl">[number];

/** All flow control keys: their limits, their use, and the number of waiting messages. */
export function KeysPage() {
  const { values, set } = useFilters();
  const keys = useRead("GET /v2/flowControl", { query: { search: values["search"] } });
  const open = keys.data?.find(({ flowControlKey }) => flowControlKey === values["open"]);
  return (
    <Page title="Keys" count={keys.data && formatMany(keys.data.length, "key")}>
      <div className="toolbar">
        <FilterBar
          fields={[{ name: "search", title: "Contains" }]}
          fallback="search"
          placeholder="Filter by name"
        />
      </div>
      <Loaded query={keys} what="The keys">
        {(rows) => (
          <ListPanel
            label="Flow control keys"
            className="cards"
            columns={columns}
            rows={rows.toSorted((one, other) => other.waitlistSize - one.waitlistSize)}
            keyOf={({ flowControlKey }) => flowControlKey}
            open={({ flowControlKey }) => set({ open: flowControlKey })}
            empty={
              <Empty title="No keys yet" actions={<PublishLink />}>
                <p>
                  A key limits how many of its messages are in flight, and how many are sent per period. The
                  first message with the header Svc-Flow-Control-Key creates it.
                </p>
              </Empty>
            }
          />
        )}
      </Loaded>
      {open && <KeyDialog key={open.flowControlKey} of={open} close={() => set({ open: undefined })} />}
    </Page>
  );
}

const columns: readonly Column<Key>[] = [
  {
    head: "State",
    className: "c-state w-state",
    cell: ({ isPaused, waitlistSize }) =>
      isPaused ? (
        <State state="paused" word="Paused" />
      ) : waitlistSize > 0 ? (
        <State state="held" word="Holding" />
      ) : (
        <State state="delivered" word="Open" />
      ),
  },
  {
    head: "Key",
    className: "c-what",
    cell: ({ flowControlKey }) => (
      <span className="host">
        <Visible text={flowControlKey} />
      </span>
    ),
  },
  {
    head: "Waiting",
    className: "num c-when w-s",
    cell: ({ waitlistSize }) => <b>{formatCount(waitlistSize)}</b>,
  },
  {
    head: "Parallelism",
    className: "num p1 w-m c-more",
    cell: ({ parallelismCount, parallelismMax }) =>
      parallelismMax > 0 ? `${formatCount(parallelismCount)} of ${formatCount(parallelismMax)}` : "no limit",
  },
  {
    head: "Rate",
    className: "num p2 w-where c-more",
    cell: ({ rateCount, rateMax, ratePeriod }) =>
      rateMax > 0
        ? `${formatCount(rateCount)} of ${formatCount(rateMax)} in ${formatSpan(ratePeriod * 1000)}`
        : "no limit",
  },
  {
    head: <span className="vh">Actions</span>,
    className: "act w-act2",
    cell: (key) => <PauseKey of={key} />,
  },
];

const PauseKey = ({ of: { flowControlKey: key, isPaused } }: { of: Key }) => (
  <PauseButton
    name={`Key ${key}`}
    isPaused={isPaused}
    pause={() => send("POST /v2/flowControl/{key}/pause", { params: { key } })}
    resume={() => send("POST /v2/flowControl/{key}/resume", { params: { key } })}
  />
);
