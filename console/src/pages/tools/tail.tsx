import { Eraser, RotateCw } from "lucide-react";
import { memo, useCallback, useLayoutEffect, useRef, useState } from "react";
import { Button, Id, useNow } from "../../parts/basics.tsx";
import { Shortened } from "../../parts/cells.tsx";
import type { Filters } from "../../parts/filters.tsx";
import { FilterBar, useFilters } from "../../parts/filters.tsx";
import { PageLink } from "../../parts/link.tsx";
import { Panel } from "../../parts/panel.tsx";
import { State } from "../../parts/state.tsx";
import { Empty } from "../../parts/trouble.tsx";
import { Visible } from "../../parts/visible.tsx";
import { formatCount, formatExact, formatMany, formatSpan, formatTimeOfDay } from "../../parts/words.ts";
import { useLive } from "../../shell/live.ts";
import { InDrawer, Page } from "../../shell/shell.tsx";
import { MessageDrawer } from "../messages/drawer.tsx";
import { logFields } from "../messages/log.tsx";
import { logStates } from "../messages/states.ts";
import type { TailRow, TailView } from "./tailRows.ts";
import { maxRows } from "./tailRows.ts";
import type { TailState } from "./tailStream.ts";
import { useTail } from "./tailStream.ts";
import "../../styles/tail.css";

/** The log as it is written. The newest entry is at the end, and what is read stays where it is. */
export function TailPage() {
  const { values, set } = useFilters();
  const { open } = values;
  const query = Object.fromEntries(logFields.map(({ name }) => [name, values[name]]));
  return (
    <Page title="Tail">
      <div className="toolbar">
        <FilterBar fields={logFields} fallback="label" placeholder="Filter by label, URL or id" />
      </div>
      {/* With other filters, it begins again. */}
      <TailPanel key={JSON.stringify(query)} query={query} openKey={open} set={set} />
      {open !== undefined && (
        <InDrawer>
          <MessageDrawer key={open} id={open} close={() => set({ open: undefined })} />
        </InDrawer>
      )}
    </Page>
  );
}

type TailPanelProps = {
  query: Readonly<Record<string, string | undefined>>;
  openKey: string | undefined;
  set: Filters["set"];
};

function TailPanel({ query, openKey, set }: TailPanelProps) {
  const { isPaused, pause } = useLive();
  const [isAtEnd, setIsAtEnd] = useState(true);
  const isStill = isPaused || !isAtEnd;
  const tail = useTail(query, isStill);
  const { view, state, clear, reconnect } = tail;
  const latest = useRef(set);
  latest.current = set;
  const show = useCallback((id: string) => latest.current({ open: id }), []);
  return (
    <Panel
      title="Log"
      sub={<Connection state={state} isPaused={isStill} />}
      end={
        <>
          {(state.kind === "waiting" || state.kind === "refused") && (
            <Button isSmall icon={RotateCw} onClick={reconnect}>
              Connect now
            </Button>
          )}
          <Button isSmall kind="ghost" icon={Eraser} onClick={clear}>
            Clear
          </Button>
        </>
      }
      footer={<Foot view={view} />}
    >
      <Lines
        view={view}
        isAtEnd={isAtEnd}
        setIsAtEnd={setIsAtEnd}
        unpause={() => pause(false)}
        openKey={openKey}
        show={show}
      />
    </Panel>
  );
}

/** Whether entries come in. */
function Connection({ state, isPaused }: { state: TailState; isPaused: boolean }) {
  const now = useNow();
  if (state.kind === "refused") return <State state="failed" word={`Refused: ${state.why}`} />;
  if (state.kind === "waiting")
    return (
      <State
        state="retrying"
        word={`Not connected: ${state.why}. Reconnecting in ${formatSpan(Math.max(1_000, state.until - now))}`}
      />
    );
  if (state.kind === "opening") return <State state="pending" word="Connecting" />;
  return isPaused ? (
    <State state="paused" word="Paused" />
  ) : (
    <State state="delivering" word="Follows the log, about 2 seconds behind" />
  );
}

/** How many entries came, and how many are missing. */
const Foot = ({ view: { came, leftOut } }: { view: TailView }) => (
  <>
    <span>
      {formatMany(came, "entry", "entries")}
      {leftOut > 0 && (
        <span className="code-warn"> · {formatMany(leftOut, "entry", "entries")} left out by the server</span>
      )}
    </span>
    <span className="end sub">The page keeps the last {formatCount(maxRows)}.</span>
  </>
);

type LinesProps = {
  view: TailView;
  isAtEnd: boolean;
  setIsAtEnd(isAtEnd: boolean): void;
  unpause(): void;
  openKey: string | undefined;
  show(id: string): void;
};

/** The rows, in a box that scrolls. It follows the newest row unless the person scrolls up. */
function Lines({ view, isAtEnd, setIsAtEnd, unpause, openKey, show }: LinesProps) {
  const box = useRef<HTMLDivElement>(null);
  const follow = useRef(true);
  const { shown, waiting } = view;
  useLayoutEffect(() => {
    const element = box.current;
    if (element && follow.current) element.scrollTop = element.scrollHeight;
  }, [shown]);
  const scrolled = (): void => {
    const element = box.current;
    if (!element) return;
    follow.current = element.scrollHeight - element.scrollTop - element.clientHeight < 8;
    setIsAtEnd(follow.current);
  };
  const showNew = (): void => {
    follow.current = true;
    setIsAtEnd(true);
    unpause();
    if (box.current) box.current.scrollTop = box.current.scrollHeight;
  };
  return (
    <div className="tail">
      <div
        className="tail-rows"
        ref={box}
        role="log"
        aria-live="off"
        aria-label="Entries of the log"
        tabIndex={0}
        onScroll={scrolled}
      >
        {shown.length === 0 && (
          <Empty title="No entries yet">
            <p>An entry appears here when a message changes its state. Older entries are in the log.</p>
          </Empty>
        )}
        {shown.map((row) => (
          <Line
            key={row.id}
            row={row}
            isOpen={row.kind === "entry" && row.messageId === openKey}
            show={show}
          />
        ))}
      </div>
      {(waiting > 0 || !isAtEnd) && (
        <button type="button" className="tail-new" onClick={showNew}>
          {waiting > 0 ? `${formatCount(waiting)} new` : "Follow"}
        </button>
      )}
    </div>
  );
}

type LineProps = { row: TailRow; isOpen: boolean; show(id: string): void };

/** One row. It never changes, so it is drawn once. */
const Line = memo(({ row, isOpen, show }: LineProps) => {
  if (row.kind === "gap") return <Gap row={row} />;
  const { messageId, state, method, url = "", label, error, responseStatus, duration, time } = row;
  return (
    <div className={`tail-row ${isOpen ? "cursor" : ""}`}>
      <time dateTime={new Date(time).toISOString()} title={formatExact(time)}>
        {formatTimeOfDay(time)}
      </time>
      <State {...logStates[state]} />
      <button type="button" className="link" title={messageId} onClick={() => show(messageId)}>
        <Id id={messageId} />
      </button>
      <span className="t" title={url}>
        <span className="method">{method}</span> <Visible text={url} />
      </span>
      <span className="tail-end t">
        {responseStatus !== undefined && (
          <b className={state === "DELIVERED" ? undefined : "code-bad"}>{responseStatus}</b>
        )}{" "}
        {duration !== undefined && formatSpan(duration)} <Shortened text={error ?? label} />
      </span>
    </div>
  );
});

/** The entries that are missing here are in the log. */
const Gap = ({ row: { from, to, count, why } }: { row: Extract<TailRow, { kind: "gap" }> }) => (
  <div className="tail-row gap">
    {count === undefined ? "Entries may be missing" : `${formatMany(count, "entry", "entries")} left out`}:{" "}
    {why}.{" "}
    <PageLink
      className="link"
      to="/messages"
      search={{ view: "log", fromDate: String(from), toDate: String(to) }}
    >
      Show them in the log
    </PageLink>
  </div>
);
