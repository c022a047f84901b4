import { Pause, Play, RotateCcw } from "lucide-react";
import type { SyntheticEvent } from "react";
import { useState } from "react";
import type { Response } from "../../api/client.ts";
import { send, toPath } from "../../api/client.ts";
import { useChange, useRead } from "../../api/queries.ts";
import { useMay } from "../../api/session.ts";
import { Button } from "../../parts/basics.tsx";
import { Codes } from "../../parts/codes.tsx";
import { Dialog, useAction } from "../../parts/dialog.tsx";
import { FilterBar, useFilters } from "../../parts/filters.tsx";
import { PageLink } from "../../parts/link.tsx";
import { Loaded, Panel } from "../../parts/panel.tsx";
import { State } from "../../parts/state.tsx";
import type { Column } from "../../parts/table.tsx";
import { Table } from "../../parts/table.tsx";
import { Empty, Refused } from "../../parts/trouble.tsx";
import { formatCount, formatMany, formatSpan } from "../../parts/words.ts";
import { Page } from "../../shell/shell.tsx";
import { useDo } from "../../shell/toasts.tsx";

type Key = Response<"GET /v2/flowControl">[number];

/** All flow control keys: their limits, how much of them is used, and what waits for them. */
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
          <Panel>
            {rows.length === 0 ? (
              <Empty title="No keys">
                <p>
                  A key limits how many messages with it are sent at once, and how many in a period. The first
                  message with the header Svc-Flow-Control-Key makes it.
                </p>
              </Empty>
            ) : (
              <Table
                label="Flow control keys"
                className="cards"
                columns={columns}
                rows={rows.toSorted((one, other) => other.waitlistSize - one.waitlistSize)}
                keyOf={({ flowControlKey }) => flowControlKey}
                open={({ flowControlKey }) => set({ open: flowControlKey })}
              />
            )}
          </Panel>
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
        <State state="held" word="Holds" />
      ) : (
        <State state="delivered" word="Open" />
      ),
  },
  {
    head: "Key",
    className: "c-what",
    cell: ({ flowControlKey }) => <span className="host">{flowControlKey}</span>,
  },
  {
    head: "Wait",
    className: "num c-when w-s",
    cell: ({ waitlistSize }) => <b>{formatCount(waitlistSize)}</b>,
  },
  {
    head: "At once",
    className: "num p1 w-m",
    cell: ({ parallelismCount, parallelismMax }) =>
      parallelismMax > 0 ? `${formatCount(parallelismCount)} of ${formatCount(parallelismMax)}` : "no limit",
  },
  {
    head: "Rate",
    className: "num p2 w-where",
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

const pause = (key: string) => send("POST /v2/flowControl/{key}/pause", { params: { key } });
const resume = (key: string) => send("POST /v2/flowControl/{key}/resume", { params: { key } });

function PauseKey({ of: { flowControlKey: key, isPaused } }: { of: Key }) {
  const may = useMay();
  const act = useDo();
  const change = useChange((run: () => Promise<unknown>) => run());
  if (!may.manage) return null;
  const [does, undoes] = isPaused ? [resume, pause] : [pause, resume];
  return (
    <Button
      isSmall
      icon={isPaused ? Play : Pause}
      onClick={() =>
        void act(
          () => change.mutateAsync(() => does(key)),
          `Key ${key} is ${isPaused ? "resumed" : "paused"}`,
          () => change.mutateAsync(() => undoes(key)),
        )
      }
    >
      {isPaused ? "Resume" : "Pause"}
    </Button>
  );
}

/** One key: pins its limits, so that messages do not change them, and starts its period again. */
function KeyDialog({ of, close }: { of: Key; close(): void }) {
  const { flowControlKey: key } = of;
  const may = useMay();
  const [parallelism, setParallelism] = useState(of.parallelismMax > 0 ? String(of.parallelismMax) : "");
  const [rate, setRate] = useState(of.rateMax > 0 ? String(of.rateMax) : "");
  const { error, isBusy, run } = useAction();
  const query = {
    ...(parallelism !== "" && { parallelism }),
    ...(rate !== "" && { rate, period: of.ratePeriod > 0 ? `${of.ratePeriod}s` : "1s" }),
  };
  const change = useChange((act: () => Promise<unknown>) => act());
  const isPinned = of.isPinnedParallelism || of.isPinnedRate;
  const doing = (act: () => Promise<unknown>): void =>
    void run(() => change.mutateAsync(act)).then((isDone) => isDone && close());
  const submit = (event: SyntheticEvent): void => {
    event.preventDefault();
    doing(() => send("POST /v2/flowControl/{key}/pin", { params: { key }, query }));
  };
  return (
    <Dialog title={`Key ${key}`} isOpen close={close}>
      <form onSubmit={submit}>
        <div className="dialog-body">
          <p>
            {formatMany(of.waitlistSize, "message waits", "messages wait")} for it.{" "}
            <PageLink className="link" to="/messages" search={{ flowControlKey: key }}>
              See them
            </PageLink>
          </p>
          <label className="field">
            <span className="label">At once</span>
            <input
              className="input"
              type="number"
              min={1}
              value={parallelism}
              onChange={(event) => setParallelism(event.target.value)}
              placeholder="no limit"
              readOnly={!may.manage}
            />
          </label>
          <label className="field">
            <span className="label">
              In a period of {of.ratePeriod > 0 ? formatSpan(of.ratePeriod * 1000) : "1 s"}
            </span>
            <input
              className="input"
              type="number"
              min={1}
              value={rate}
              onChange={(event) => setRate(event.target.value)}
              placeholder="no limit"
              readOnly={!may.manage}
            />
            <span className="hint">
              {isPinned
                ? "The limits are pinned: messages do not change them."
                : "Every message with the key sets its limits, until they are pinned."}
            </span>
          </label>
          <Refused error={error} />
          <details>
            <summary>As code</summary>
            <Codes
              of={{
                method: "POST",
                path: toPath("POST /v2/flowControl/{key}/pin", { params: { key }, query }),
              }}
            />
          </details>
        </div>
        {may.manage && (
          <footer>
            <Button
              kind="ghost"
              icon={RotateCcw}
              disabled={isBusy}
              onClick={() => doing(() => send("POST /v2/flowControl/{key}/resetRate", { params: { key } }))}
            >
              Start the period again
            </Button>
            {isPinned && (
              <Button
                disabled={isBusy}
                onClick={() =>
                  doing(() =>
                    send("POST /v2/flowControl/{key}/unpin", {
                      params: { key },
                      query: { parallelism: of.isPinnedParallelism, rate: of.isPinnedRate },
                    }),
                  )
                }
              >
                Unpin
              </Button>
            )}
            <Button kind="primary" type="submit" disabled={isBusy || (parallelism === "" && rate === "")}>
              Pin limits
            </Button>
          </footer>
        )}
      </form>
    </Dialog>
  );
}
