import { PageLink } from "../parts/link.tsx";
import type { UseQueryResult } from "@tanstack/react-query";
import { Play } from "lucide-react";
import { useRead } from "../api/queries.ts";
import type { Response } from "../api/client.ts";
import { send } from "../api/client.ts";
import { useMay } from "../api/session.ts";
import { Button } from "../parts/basics.tsx";
import { Loaded, Panel } from "../parts/panel.tsx";
import { Bars } from "../parts/pictures.tsx";
import { Glyph } from "../parts/state.tsx";
import type { StateName } from "../parts/state.tsx";
import { Empty, SkeletonRows } from "../parts/trouble.tsx";
import { formatCount, formatMany, splitUrl } from "../parts/words.ts";
import { Page } from "../shell/shell.tsx";
import { useDo } from "../shell/toasts.tsx";
import { useChange } from "../api/queries.ts";
import { FirstMessage } from "./firstMessage.tsx";

type Queue = Response<"GET /v2/queues">[number];
type Key = Response<"GET /v2/flowControl">[number];
type Group = Response<"GET /v2/workflows/dlq/groups">["groups"][number];

/** Something that a person must look at: what it is, how much of it, and the button that helps. */
type Need = { key: string; glyph: StateName; title: string; about: string; count: number; unit: string } & (
  | { to: string; search?: Record<string, string>; verb: string }
  | { resume: () => Promise<unknown>; undo: () => Promise<unknown>; verb: string; done: string; to: string }
);

/** The first page: is anything stuck or failing, since when, and where to press. */
export function OverviewPage() {
  const queues = useRead("GET /v2/queues");
  const keys = useRead("GET /v2/flowControl");
  const groups = useRead("GET /v2/workflows/dlq/groups", { query: {} });
  const dead = useRead("GET /v2/dlq", { query: { count: 100 } });
  const needs = [
    ...(queues.data ?? []).filter(({ paused }) => paused).map(toQueueNeed),
    ...(keys.data ?? []).filter(({ isPaused }) => isPaused).map(toKeyNeed),
    ...(groups.data?.groups ?? []).map(toGroupNeed),
    ...toDeadLetterNeeds(dead.data?.messages ?? []),
  ];
  const isWaiting = [queues, keys, groups, dead].some(({ isPending }) => isPending);
  return (
    <Page title="Overview">
      {isWaiting ? (
        <Panel>
          <div aria-busy="true" aria-label="Loading: the overview">
            <SkeletonRows />
          </div>
        </Panel>
      ) : (
        <OverviewParts needs={needs} queues={queues} keys={keys} />
      )}
    </Page>
  );
}

type PartsProps = {
  needs: readonly Need[];
  queues: UseQueryResult<Response<"GET /v2/queues">>;
  keys: UseQueryResult<Response<"GET /v2/flowControl">>;
};

function OverviewParts({ needs, queues, keys }: PartsProps) {
  return (
    <>
      <Answer needs={needs} />
      {needs.length > 0 && <Needs needs={needs} />}
      <div className="grid">
        <Panel
          title="Longest queues"
          className="w6"
          end={
            <PageLink className="link" to="/queues">
              All queues
            </PageLink>
          }
        >
          <Loaded query={queues} what="The queues" rows={4}>
            {(rows) => (
              <Longest
                entries={rows.map(({ name, lag, paused }) => ({ name, value: lag, isPaused: paused }))}
              />
            )}
          </Loaded>
        </Panel>
        <Panel
          title="Longest waitlists of keys"
          className="w6"
          end={
            <PageLink className="link" to="/keys">
              All keys
            </PageLink>
          }
        >
          <Loaded query={keys} what="The keys" rows={4}>
            {(rows) => (
              <Longest
                entries={rows.map((one) => ({
                  name: one.flowControlKey,
                  value: one.waitlistSize,
                  isPaused: one.isPaused,
                }))}
              />
            )}
          </Loaded>
        </Panel>
      </div>
      <FirstMessage />
    </>
  );
}

const Answer = ({ needs }: { needs: readonly Need[] }) => (
  <div className="answer">
    <h2>
      {needs.length === 0
        ? "Nothing needs you"
        : `${formatMany(needs.length, "thing")} ${needs.length === 1 ? "needs" : "need"} you`}
    </h2>
    <p>
      {needs.length === 0 ? "Nothing is paused, and nothing has failed for good." : "Everything else moves."}
    </p>
  </div>
);

const Needs = ({ needs }: { needs: readonly Need[] }) => (
  <section className="panel" aria-label="Needs attention">
    <ul className="needs">
      {needs.slice(0, 8).map((need) => (
        <NeedRow key={need.key} need={need} />
      ))}
    </ul>
  </section>
);

function NeedRow({ need }: { need: Need }) {
  const may = useMay();
  const act = useDo();
  const change = useChange((resume: () => Promise<unknown>) => resume());
  return (
    <li>
      <Glyph state={need.glyph} />
      <div className="grow">
        <div className="l1">
          <span className="t">{need.title}</span>
        </div>
        <div className="l2">
          <span className="t">{need.about}</span>
        </div>
      </div>
      <div className="big">
        {formatCount(need.count)}
        <small>{need.unit}</small>
      </div>
      {"resume" in need && may.manage ? (
        <Button
          icon={Play}
          onClick={() =>
            void act(
              () => change.mutateAsync(need.resume),
              need.done,
              () => change.mutateAsync(need.undo),
            )
          }
        >
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

const toQueueNeed = ({ name, lag }: Queue): Need => ({
  key: `queue ${name}`,
  glyph: "paused",
  title: `Queue ${name} is paused`,
  about: "It sends nothing until someone resumes it.",
  count: lag,
  unit: "wait",
  verb: "Resume queue",
  resume: () => send("POST /v2/queues/{name}/resume", { params: { name } }),
  undo: () => send("POST /v2/queues/{name}/pause", { params: { name } }),
  done: `Queue ${name} is resumed`,
  to: `/queues/${encodeURIComponent(name)}`,
});

const toKeyNeed = ({ flowControlKey: key, waitlistSize }: Key): Need => ({
  key: `key ${key}`,
  glyph: "paused",
  title: `Key ${key} is paused`,
  about: "Its messages wait until someone resumes it.",
  count: waitlistSize,
  unit: "wait",
  verb: "Resume key",
  resume: () => send("POST /v2/flowControl/{key}/resume", { params: { key } }),
  undo: () => send("POST /v2/flowControl/{key}/pause", { params: { key } }),
  done: `Key ${key} is resumed`,
  to: "/keys",
});

const toGroupNeed = ({ workflowUrl, stepName, error, count, dlqId }: Group): Need => ({
  key: `group ${dlqId}`,
  glyph: "failed",
  title: `Runs of ${splitUrl(workflowUrl).host}${splitUrl(workflowUrl).path} failed${stepName ? ` at “${stepName}”` : ""}`,
  about: error,
  count,
  unit: count === 1 ? "run" : "runs",
  verb: "Open the group",
  to: "/messages",
  search: { view: "FAILED" },
});

function toDeadLetterNeeds(messages: Response<"GET /v2/dlq">["messages"]): Need[] {
  const byHost = Map.groupBy(messages, ({ url }) => splitUrl(url).host);
  return [...byHost].map(([host, of]) => ({
    key: `host ${host}`,
    glyph: "failed",
    title: `${host} does not take its messages`,
    about: describeFailure(of[0]),
    count: of.length,
    unit: "failed",
    verb: "Open",
    to: "/messages",
    search: { view: "FAILED" },
  }));
}

const describeFailure = (one: Response<"GET /v2/dlq">["messages"][number] | undefined): string =>
  !one
    ? ""
    : one.error || (one.responseStatus ? `The last answer was ${one.responseStatus}.` : "It did not answer.");

function Longest({ entries }: { entries: readonly { name: string; value: number; isPaused: boolean }[] }) {
  const shown = entries
    .filter(({ value }) => value > 0)
    .toSorted((one, other) => other.value - one.value)
    .slice(0, 6);
  return shown.length === 0 ? (
    <Empty title="Nothing waits here" />
  ) : (
    <div className="body">
      <Bars
        entries={shown.map(({ name, value, isPaused }) => ({
          name,
          value,
          fill: isPaused ? "f-ink" : "f-gate",
          sub: isPaused ? "paused" : "",
        }))}
      />
    </div>
  );
}
