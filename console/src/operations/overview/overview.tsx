import type { UseQueryResult } from "@tanstack/react-query";
import { Play } from "lucide-react";
import type { Response } from "../../api/client.ts";
import { send } from "../../api/client.ts";
import { useRead } from "../../api/queries.ts";
import { useMay } from "../../api/session.ts";
import { Button } from "../../parts/basics.tsx";
import { Shortened } from "../../parts/cells.tsx";
import { PageLink } from "../../parts/link.tsx";
import { Loaded, Panel } from "../../parts/panel.tsx";
import { Glyph } from "../../parts/state.tsx";
import type { StateName } from "../../parts/stateName.ts";
import { SkeletonRows } from "../../parts/trouble.tsx";
import { fillStatus, formatCount, formatMany, splitUrl } from "../../parts/words.ts";
import { Page } from "../../shell/shell.tsx";
import { useDo } from "../../shell/toasts.tsx";
import { FirstMessage } from "./firstMessage.tsx";
import { OverviewFigures } from "./overviewFigures.tsx";

type RunGroup = Response<"GET /v2/workflows/dlq/groups">["groups"][number];
type DeadGroup = Response<"GET /v2/dlq/groups">["groups"][number];

/** A problem: what it is, how many messages or runs have it, and the button that helps. */
type Need = {
  key: string;
  glyph: StateName;
  title: string;
  about: string;
  count?: number;
  unit?: string;
  to: string;
} & (
  | { verb: string; search?: Record<string, string> }
  | { resume: () => Promise<unknown>; undo: () => Promise<unknown>; verb: string; done: string }
);

/** The first page. It shows what is paused or failing, and the button that helps. */
export function OverviewPage() {
  const overview = useRead("GET /v2/overview");
  const runGroups = useRead("GET /v2/workflows/dlq/groups", { query: {} });
  const deadGroups = useRead("GET /v2/dlq/groups", { query: {} });
  const log = useRead("GET /v2/logs", { query: { count: 1 } });
  const all = [overview, runGroups, deadGroups, log] as const;
  const isWaiting = all.some(({ isPending }) => isPending);
  const parts = [
    ["the queues, the keys and the figures", overview],
    ["the dead letters", deadGroups],
    ["the failed runs", runGroups],
  ] as const;
  const needs = [
    ...(overview.data?.paused.queues.names ?? []).map(toQueueNeed),
    ...(overview.data?.paused.keys.names ?? []).map(toKeyNeed),
    ...(deadGroups.data?.groups ?? []).map(toDeadNeed),
    ...(runGroups.data?.groups ?? []).map(toRunNeed),
  ];
  return (
    <Page title="Overview">
      {isWaiting ? (
        <Panel>
          <div aria-busy="true" aria-label="Loading: the overview">
            <SkeletonRows />
          </div>
        </Panel>
      ) : (
        <Parts needs={needs} overview={overview} parts={parts} isNew={log.data?.events.length === 0} />
      )}
    </Page>
  );
}

const Parts = ({
  needs,
  overview,
  parts,
  isNew,
}: {
  needs: readonly Need[];
  /** The parts of the overview, by their names. Some may be unread. */
  parts: readonly (readonly [name: string, query: UseQueryResult])[];
  /** Whether nothing was published yet. */
  isNew: boolean;
  overview: UseQueryResult<Response<"GET /v2/overview">>;
}) => (
  <>
    <Answer
      count={needs.length}
      unread={parts.filter(([, { data }]) => data === undefined).map(([name]) => name)}
    />
    {needs.length > 0 && (
      <section className="panel" aria-label="Needs attention">
        <ul className="needs">
          {needs.slice(0, 8).map((need) => (
            <NeedRow key={need.key} need={need} />
          ))}
        </ul>
      </section>
    )}
    {isNew && <FirstMessage />}
    <Loaded query={overview} what="The figures">
      {(data) => <OverviewFigures data={data} />}
    </Loaded>
  </>
);

/** The first sentence. It never says that all is well if a part could not be read. */
function Answer({ count, unread }: { count: number; unread: readonly string[] }) {
  const [title, about] =
    count > 0
      ? [
          `${formatMany(count, "problem needs", "problems need")} attention`,
          "Paused queues and keys, and failures by cause.",
        ]
      : unread.length > 0
        ? ["The overview is not complete", "Something may need attention."]
        : ["Nothing needs attention", "No queue or key is paused, and no message or run has failed."];
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

function NeedRow({ need }: { need: Need }) {
  const may = useMay();
  const act = useDo();
  return (
    <li>
      <Glyph state={need.glyph} />
      <div className="grow">
        <div className="l1">
          <Shortened text={need.title} />
        </div>
        <div className="l2">
          <Shortened text={need.about} />
        </div>
      </div>
      <div className="big">
        {need.count !== undefined && formatCount(need.count)}
        <small>{need.unit}</small>
      </div>
      {"resume" in need && may.manage ? (
        <Button icon={Play} onClick={() => void act(need.resume, need.done, need.undo)}>
          {need.verb}
        </Button>
      ) : (
        <PageLink className="btn" to={need.to} search={"search" in need ? need.search : {}}>
          {"resume" in need ? "Open" : need.verb}
        </PageLink>
      )}
    </li>
  );
}

const toQueueNeed = (name: string): Need => ({
  key: `queue ${name}`,
  glyph: "paused",
  title: `Queue ${name} is paused`,
  about: "It sends no messages until you resume it.",
  verb: "Resume queue",
  resume: () => send("POST /v2/queues/{name}/resume", { params: { name } }),
  undo: () => send("POST /v2/queues/{name}/pause", { params: { name } }),
  done: `Queue ${name} is resumed`,
  to: `/queues/${encodeURIComponent(name)}`,
});

const toKeyNeed = (key: string): Need => ({
  key: `key ${key}`,
  glyph: "paused",
  title: `Key ${key} is paused`,
  about: "Its messages wait until you resume it.",
  verb: "Resume key",
  resume: () => send("POST /v2/flowControl/{key}/resume", { params: { key } }),
  undo: () => send("POST /v2/flowControl/{key}/pause", { params: { key } }),
  done: `Key ${key} is resumed`,
  to: "/keys",
});

const toDeadNeed = ({ url, responseStatus, error, count, dlqId }: DeadGroup): Need => ({
  key: `dead ${dlqId}`,
  glyph: "failed",
  title: `${splitUrl(url).host} ${responseStatus === undefined ? "does not respond" : `responds with ${responseStatus}`}`,
  about: [splitUrl(url).path, fillStatus(error, responseStatus)].filter(Boolean).join(": "),
  count,
  unit: "failed",
  verb: "Show",
  to: "/dead-letters",
  search: { url },
});

const toRunNeed = ({ workflowUrl, stepName, error, count, dlqId }: RunGroup): Need => ({
  key: `run ${dlqId}`,
  glyph: "failed",
  title: `Runs of ${splitUrl(workflowUrl).path || workflowUrl} failed${stepName === undefined ? "" : ` at “${stepName}”`}`,
  about: error,
  count,
  unit: count === 1 ? "run" : "runs",
  verb: "Show",
  to: "/failed-runs",
});
