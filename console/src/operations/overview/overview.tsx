import type { UseQueryResult } from "@tanstack/react-query";
import { Play } from "lucide-react";
import { useState } from "react";
import type { Response } from "../../api/client.ts";
import { pace, useRead } from "../../api/queries.ts";
import { useMay } from "../../api/session.ts";
import { Button, Time } from "../../parts/basics.tsx";
import { Shortened } from "../../parts/cells.tsx";
import { PageLink } from "../../parts/link.tsx";
import { Loaded, Panel } from "../../parts/panel.tsx";
import { Glyph } from "../../parts/state.tsx";
import { SkeletonRows } from "../../parts/trouble.tsx";
import { Visible } from "../../parts/visible.tsx";
import { formatCount, formatMany } from "../../parts/words.ts";
import { Page } from "../../shell/shell.tsx";
import { useDo } from "../../shell/toasts.tsx";
import { FirstMessage } from "./firstMessage.tsx";
import { firstPeriod } from "./activity.tsx";
import { describeCalm, isUnused } from "./figures.ts";
import type { Need } from "./needs.ts";
import { toConditionNeed, toDeadNeed, toRestNeed, toRunNeed } from "./needs.ts";
import { OverviewFigures } from "./overviewFigures.tsx";

/** The first page. It shows what is wrong, and the button that helps. */
export function OverviewPage() {
  const overview = useRead("GET /v2/overview");
  const runGroups = useRead("GET /v2/workflows/dlq/groups", { query: {} });
  const deadGroups = useRead("GET /v2/dlq/groups", { query: { count: 20 } });
  const log = useRead("GET /v2/logs", { query: { count: 1 } });
  // The panel below reads it again. It is awaited here, so that nothing moves when it comes.
  const activity = useRead("GET /v2/activity", { query: { period: firstPeriod } }, { every: pace.slow });
  const all = [overview, runGroups, deadGroups, log, activity] as const;
  const isWaiting = all.some(({ isPending }) => isPending);
  const parts = [
    ["what is wrong, and the figures", overview],
    ["the dead letters", deadGroups],
    ["the failed runs", runGroups],
  ] as const;
  const conditions = overview.data?.conditions ?? [];
  const dead = deadGroups.data?.groups ?? [];
  const runs = runGroups.data?.groups ?? [];
  const rest =
    deadGroups.data && runGroups.data
      ? toRestNeed(
          overview.data?.deadLetters ?? 0,
          [...dead, ...runs],
          deadGroups.data.causes - dead.length + runGroups.data.causes - runs.length,
        )
      : null;
  const listNeeds = (level: (typeof conditions)[number]["level"]): Need[] =>
    conditions.filter((one) => one.level === level).map(toConditionNeed);
  const needs = [
    ...listNeeds("problem"),
    ...dead.map((group) => toDeadNeed(group, dead)),
    ...runs.map(toRunNeed),
    ...(rest ? [rest] : []),
    ...listNeeds("warning"),
  ];
  const notes = listNeeds("note");
  return (
    <Page title="Overview">
      {isWaiting ? (
        <Panel>
          <div aria-busy="true" aria-label="Loading: the overview">
            <SkeletonRows />
          </div>
        </Panel>
      ) : (
        <Parts
          {...{ needs, notes, overview, parts }}
          isNew={log.data?.events.length === 0 && overview.data !== undefined && isUnused(overview.data)}
        />
      )}
    </Page>
  );
}

const Parts = ({
  needs,
  notes,
  overview,
  parts,
  isNew,
}: {
  needs: readonly Need[];
  /** Things that work as they were set up, and that somebody may want to know. */
  notes: readonly Need[];
  /** The parts of the overview, by their names. Some may be unread. */
  parts: readonly (readonly [name: string, query: UseQueryResult])[];
  /** Whether nothing was published yet. */
  isNew: boolean;
  overview: UseQueryResult<Response<"GET /v2/overview">>;
}) => (
  <>
    <Answer
      count={needs.length}
      calm={overview.data ? describeCalm(overview.data) : ""}
      unread={parts.filter(([, { data }]) => data === undefined).map(([name]) => name)}
    />
    <NeedList label="Needs attention" needs={needs} />
    <NeedList label="Good to know" needs={notes} />
    {isNew && <FirstMessage />}
    <Loaded query={overview} what="The figures">
      {(data) => <OverviewFigures data={data} />}
    </Loaded>
  </>
);

/** The first sentences. They never say that all is well if a part could not be read. */
function Answer({ count, calm, unread }: { count: number; calm: string; unread: readonly string[] }) {
  const [title, about] =
    count > 0
      ? [`${formatMany(count, "problem needs", "problems need")} attention`, "The most urgent is first."]
      : unread.length > 0
        ? ["The overview is not complete", "Something may need attention."]
        : ["Nothing needs attention", calm];
  return (
    <div className="answer">
      <h2>{title}</h2>
      <p>
        {about}
        {unread.length > 0 && ` This could not be read: ${unread.join(", ")}.`}
      </p>
    </div>
  );
}

/** The rows of a list that are shown before all are asked for. */
const firstRows = 8;

function NeedList({ label, needs }: { label: string; needs: readonly Need[] }) {
  const [isWhole, setWhole] = useState(false);
  if (needs.length === 0) return null;
  return (
    <Panel title={label}>
      <ul className="needs">
        {(isWhole ? needs : needs.slice(0, firstRows)).map((need) => (
          <NeedRow key={need.key} need={need} />
        ))}
      </ul>
      {!isWhole && needs.length > firstRows && (
        <Button kind="ghost" onClick={() => setWhole(true)}>
          Show {formatCount(needs.length - firstRows)} more
        </Button>
      )}
    </Panel>
  );
}

function NeedRow({ need }: { need: Need }) {
  const may = useMay();
  const act = useDo();
  const { remedy, place } = need;
  const button = may.manage && need.plan ? need.plan : place;
  return (
    <li>
      <Glyph state={need.glyph} />
      <div className="grow">
        <div className="l1">
          {place ? (
            <PageLink className="t" to={place.to} search={place.search ?? {}} title={need.title}>
              <Visible text={need.title.slice(0, 200)} />
            </PageLink>
          ) : (
            <Shortened text={need.title} />
          )}
        </div>
        <div className="l2">
          {need.about !== undefined && <Shortened text={need.about} />}
          {need.since !== undefined && (
            <span className="t">
              Since <Time at={need.since} />
              {need.by !== undefined && `, by ${need.by}`}
            </span>
          )}
        </div>
      </div>
      <div className="big">
        {need.count !== undefined && formatCount(need.count)}
        <small>{need.unit}</small>
      </div>
      {remedy && may.manage ? (
        <Button icon={Play} onClick={() => void act(remedy.resume, remedy.done, remedy.undo)}>
          {remedy.verb}
        </Button>
      ) : (
        button && (
          <PageLink className="btn" to={button.to} search={button.search ?? {}}>
            {remedy ? "Open" : (button.verb ?? "Show")}
          </PageLink>
        )
      )}
    </li>
  );
}
