import { Plus } from "lucide-react";
import { useState } from "react";
import type { Response } from "../../api/client.ts";
import { useRead } from "../../api/queries.ts";
import { Button, Id, Time, useNow } from "../../parts/basics.tsx";
import { useMay } from "../../api/session.ts";
import type { MadeToken, Successor } from "../../pages/settings/tokens.tsx";
import { ShowToken, TokenForm } from "../../pages/settings/tokens.tsx";
import { Whole } from "../../parts/cells.tsx";
import { PageLink } from "../../parts/link.tsx";
import { ListPanel } from "../../parts/list.tsx";
import { Loaded, Panel } from "../../parts/panel.tsx";
import type { Series as Drawn } from "../../parts/pictures.tsx";
import { Chart, Legend } from "../../parts/pictures.tsx";
import type { StateName } from "../../parts/stateName.ts";
import { State } from "../../parts/state.tsx";
import type { Column } from "../../parts/table.tsx";
import { Empty } from "../../parts/trouble.tsx";
import { Visible } from "../../parts/visible.tsx";
import { formatCount, shortId } from "../../parts/words.ts";
import { Page } from "../../shell/shell.tsx";

type Series = Response<"GET /v2/unpublished">["series"][number];

const hour = 3_600_000;
/** The hours that the chart shows. */
const hours = 48;

/** The requests that never became a message, by sender and reason. */
export function UnpublishedPage() {
  const found = useRead("GET /v2/unpublished");
  const may = useMay();
  const [followed, setFollowed] = useState<Successor | null>(null);
  const [made, setMade] = useState<MadeToken | null>(null);
  const count = found.data?.series.reduce((sum, { lastHour }) => sum + lastHour, 0);
  return (
    <Page title="Not published" count={count !== undefined && `${formatCount(count)} within an hour`}>
      {made && <ShowToken {...made} />}
      {followed && <TokenForm of={followed} close={() => setFollowed(null)} done={setMade} />}
      <Loaded query={found} what="What was not published">
        {({ series }) => (
          <>
            {series.length > 0 && <OverTime series={series} />}
            <ListPanel
              label="Requests that never became a message"
              columns={
                may.manage && series.some(isOfLostToken)
                  ? [...columns, makeSuccessorColumn(setFollowed)]
                  : columns
              }
              rows={series}
              keyOf={({ subject, reason }) => `${subject} ${reason}`}
              words={["series", "series"]}
              empty={
                <Empty title="Every request became a message">
                  <p>Requests that are refused, repeated or rejected appear here, for a week.</p>
                </Empty>
              }
            />
          </>
        )}
      </Loaded>
    </Page>
  );
}

/** Returns how a series is shown. A repeated message is not a failure. */
const toState = ({ kind, reason }: Series): { state: StateName; word: string } =>
  reason === "deduplicated"
    ? { state: "paused", word: "Duplicate" }
    : { state: "failed", word: kind === "source" ? "Rejected" : "Refused" };

const reasons: Readonly<Record<string, string>> = {
  deduplicated: "It repeats an earlier message.",
  revoked: "The token was revoked or replaced.",
  expired: "The token has expired.",
  unauthorized: "The credentials are missing or not valid.",
  forbidden: "The token may not publish there.",
  other: "There are too many series to show each.",
  invalid: "The request is malformed.",
  "not-found": "The object does not exist in this account.",
};

/** Returns who sent the requests of a series. */
const nameSender = ({ kind, name, subject }: Series): string => {
  if (name !== "") return name;
  if (kind === "unknown") return "an unknown token";
  if (kind === "session") return "the web console";
  return kind === "other" ? "others" : subject;
};

function OverTime({ series }: { series: readonly Series[] }) {
  const now = useNow();
  const first = (Math.floor(now / hour) - hours + 1) * hour;
  const starts = Array.from({ length: hours }, (_, at) => first + at * hour);
  const sumOf = (isIn: (one: Series) => boolean): number[] => {
    const sums = new Map<number, number>();
    for (const one of series.filter(isIn))
      for (const { start, count } of one.hours) sums.set(start, (sums.get(start) ?? 0) + count);
    return starts.map((start) => sums.get(start) ?? 0);
  };
  const drawn: Drawn[] = [
    {
      ...{ name: "refused", kind: "bar", fill: "f-bad", dot: "bad" },
      values: sumOf(({ kind, reason }) => kind !== "source" && reason !== "deduplicated"),
    },
    {
      ...{ name: "rejected by a source", kind: "bar", fill: "f-warn", dot: "warn" },
      values: sumOf(({ kind, reason }) => kind === "source" && reason !== "deduplicated"),
    },
    {
      ...{ name: "duplicates", kind: "bar", fill: "f-move", dot: "move" },
      values: sumOf(({ reason }) => reason === "deduplicated"),
    },
  ];
  return (
    <Panel title="Per hour" sub={`the last ${hours} hours`} end={<Legend series={drawn} />}>
      <div className="body">
        <Chart
          label={`Requests that never became a message, in the last ${hours} hours`}
          series={drawn}
          times={starts.map((start) => clock.format(start))}
        />
      </div>
    </Panel>
  );
}

const clock = new Intl.DateTimeFormat("en-GB", { weekday: "short", hour: "2-digit", minute: "2-digit" });

/** Reports whether requests came with a token that is no longer valid. */
const isOfLostToken = ({ subject, reason }: Series): boolean =>
  subject.startsWith("tok_") && (reason === "revoked" || reason === "expired");

/** Returns the column with the button that creates the successor of a token that is no longer valid. */
const makeSuccessorColumn = (follow: (token: Successor) => void): Column<Series> => ({
  head: <span className="vh">Actions</span>,
  className: "act w-create",
  cell: (one) =>
    isOfLostToken(one) && (
      <Button isSmall icon={Plus} onClick={() => follow(one)}>
        Create a token
      </Button>
    ),
});

type EarlierProps = { id: string; deduplicationId: string | undefined };

/** The deduplication id of the last duplicate, and the message that it repeats. */
const Earlier = ({ id, deduplicationId }: EarlierProps) => (
  <div className="l2">
    <span className="t whole">
      {deduplicationId === undefined ? (
        "Same content as "
      ) : (
        <>
          Id{" "}
          <b className="id" title={deduplicationId}>
            <Visible text={deduplicationId} />
          </b>
          , first used by{" "}
        </>
      )}
      <PageLink to="/messages" search={{ open: id }}>
        {shortId(id)}
      </PageLink>
    </span>
  </div>
);

const columns: readonly Column<Series>[] = [
  { head: "State", className: "c-state w-state", cell: (one) => <State {...toState(one)} /> },
  {
    head: "Sender and reason",
    className: "c-what",
    cell: (one) => (
      <>
        <div className="l1">
          {one.kind === "source" ? (
            <PageLink className="t host whole" to="/sources" title={nameSender(one)}>
              {nameSender(one)}
            </PageLink>
          ) : (
            <Whole text={nameSender(one)} isName />
          )}
        </div>
        <div className="l2">
          {one.subject.startsWith("tok_") && <Id id={one.subject} />}
          <span className="t whole">{reasons[one.reason] ?? one.reason}</span>
        </div>
        {one.messageId !== undefined && <Earlier id={one.messageId} deduplicationId={one.deduplicationId} />}
      </>
    ),
  },
  { head: "From", className: "p4 c-more w-where", cell: ({ address }) => address ?? "" },
  { head: "Last hour", className: "num p3 w-s c-more", cell: ({ lastHour }) => formatCount(lastHour) },
  { head: "Total", className: "num p2 w-s c-more", cell: ({ total }) => formatCount(total) },
  { head: "First", className: "num time p4 w-m", cell: ({ firstAt }) => <Time at={firstAt} /> },
  { head: "Last", className: "num time c-when w-m", cell: ({ lastAt }) => <Time at={lastAt} /> },
];
