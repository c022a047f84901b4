import type { UseQueryResult } from "@tanstack/react-query";
import { useNavigate } from "@tanstack/react-router";
import { Play, RotateCw } from "lucide-react";
import type { ComponentProps } from "react";
import { useState } from "react";
import type { Response } from "../../api/client.ts";
import { send } from "../../api/client.ts";
import { useRead } from "../../api/queries.ts";
import { useMay } from "../../api/session.ts";
import { Button, Id, Time } from "../../parts/basics.tsx";
import { Bulk } from "../../operations/jobs/bulk.tsx";
import { Shortened, TwoLines, Whole } from "../../parts/cells.tsx";
import type { FilterField } from "../../parts/filters.tsx";
import { FilterBar, useFilters } from "../../parts/filters.tsx";
import { ListPanel } from "../../parts/list.tsx";
import { Loaded } from "../../parts/panel.tsx";
import { oldestFirst, OrderSelect } from "../../parts/orderSelect.tsx";
import { ActButton, useChosen } from "../../parts/chosen.tsx";
import type { Choice, Column } from "../../parts/table.tsx";
import { Empty } from "../../parts/trouble.tsx";
import { formatCount, formatMany, splitUrl } from "../../parts/words.ts";
import { Page } from "../../shell/shell.tsx";
import { useDo } from "../../shell/toasts.tsx";
import { Visible } from "../../parts/visible.tsx";

type Group = Response<"GET /v2/workflows/dlq/groups">["groups"][number];
type FailedRun = Response<"GET /v2/workflows/dlq">["messages"][number];

const fields: readonly FilterField[] = [
  { name: "workflowUrl", title: "Workflow", hint: "https://…" },
  { name: "workflowRunId", title: "Run" },
  { name: "label", title: "Label" },
  { name: "responseStatus", title: "Status" },
  { name: "cause", title: "Cause" },
];

const acts: Record<string, Pick<ComponentProps<typeof Bulk>, "action" | "consequence" | "isDangerous">> = {
  Resume: { action: "runs.resume", consequence: "Each is resumed from its failed step, in a new run." },
  Restart: { action: "runs.restart", consequence: "Each is started again from the beginning." },
  Delete: { action: "dlq.delete", consequence: "They can no longer be resumed.", isDangerous: true },
};

/** The failed runs: the causes, then each run, with resume and restart. */
export function FailedRunsPage() {
  const { values, set } = useFilters();
  const query = Object.fromEntries(fields.map(({ name }) => [name, values[name]]));
  const groups = useRead("GET /v2/workflows/dlq/groups", { query });
  const [group] = groups.data?.groups.filter((one) => one.cause === values["cause"]) ?? [];
  const cause = group && `${describePlace(group.stepName, group.afterStep)}: “${group.error}”`;
  const { cursor, order } = values;
  const list = useRead("GET /v2/workflows/dlq", { query: { count: 50, ...query, order, cursor } });
  // The overview leads here with the action that it proposes.
  const [act, setAct] = useState<string | null>(values["act"] === "resume" ? "Resume" : null);
  const chosen = useChosen(JSON.stringify([query, values["cursor"]]));
  const filter = chosen.ids.length > 0 ? { dlqIds: chosen.ids } : query;
  return (
    <Page title="Failed runs">
      <div className="toolbar">
        <FilterBar
          fields={fields}
          words={{ cause }}
          fallback="workflowRunId"
          placeholder="Filter by run or workflow"
        />
        <span className="spring only-wide" />
        <OrderSelect orders={oldestFirst} />
        <ActButton
          chosen={chosen}
          isActing={act !== null}
          setActing={(isActing) => setAct(isActing ? "Resume" : null)}
        />
      </div>
      {act !== null && acts[act] && (
        <Bulk
          key={`${act} ${chosen.ids.join(" ")}`}
          {...acts[act]}
          filter={act === "Delete" ? { ...filter, source: "workflow" } : filter}
          isChosen={chosen.ids.length > 0}
          hasCanary={act !== "Delete"}
          close={() => {
            setAct(null);
            chosen.clear();
            if (values["act"] !== undefined) set({ act: undefined });
          }}
        >
          <div className="seg" role="group" aria-label="Action">
            {Object.keys(acts).map((one) => (
              <button key={one} type="button" aria-pressed={one === act} onClick={() => setAct(one)}>
                {one}
              </button>
            ))}
          </div>
        </Bulk>
      )}
      <Causes groups={groups} />
      {/* The list waits until the height of the causes is known, so that nothing moves. */}
      {!groups.isPending && <List list={list} choice={chosen.choice} />}
    </Page>
  );
}

type Groups = UseQueryResult<Response<"GET /v2/workflows/dlq/groups">>;
type List = UseQueryResult<Response<"GET /v2/workflows/dlq">>;

function Causes({ groups }: { groups: Groups }) {
  const { set } = useFilters();
  return (
    <Loaded query={groups} what="The causes" rows={3}>
      {({ groups: found, causes: total, entries, more }) => (
        <ListPanel
          label="Causes"
          title={formatMany(total, "cause")}
          sub={`of ${formatMany(entries, "failed run")}${more ? " or more" : ""}, by step and error`}
          columns={causeColumns}
          rows={found}
          keyOf={({ cause }) => cause}
          nameOf={({ stepName, error }) => `${stepName ?? ""} ${error}`}
          open={({ cause }) => set({ cause })}
          empty={
            <Empty title="No failed runs">
              <p>A run fails if the last retry of a step fails. You can resume the run until it expires.</p>
            </Empty>
          }
        />
      )}
    </Loaded>
  );
}

/** Returns the place of a failure: the name of the step, or the last step before it. */
const describePlace = (stepName: string | undefined, afterStep?: string): string =>
  stepName ?? (afterStep === undefined ? "Before the first step" : `After ${afterStep}`);

const causeColumns: readonly Column<Group>[] = [
  {
    head: "Failed step",
    className: "c-what",
    cell: ({ stepName, afterStep, workflowUrl }) => (
      <TwoLines
        first={
          <span className="t host">
            <Visible text={describePlace(stepName, afterStep)} />
          </span>
        }
        second={<Shortened text={splitUrl(workflowUrl).path || workflowUrl} />}
      />
    ),
  },
  {
    head: "Error",
    className: "c-why w-why",
    cell: ({ error }) => (
      <div className="l1">
        <Whole text={error} />
      </div>
    ),
  },
  {
    head: "Runs",
    className: "num c-when w-s",
    cell: ({ count, countIsMinimum }) => <b>{`${formatCount(count)}${countIsMinimum ? "+" : ""}`}</b>,
  },
  { head: "First", className: "num time p3 w-m", cell: ({ firstFailedAt }) => <Time at={firstFailedAt} /> },
  { head: "Last", className: "num time p2 w-m", cell: ({ lastFailedAt }) => <Time at={lastFailedAt} /> },
];

function List({ list, choice }: { list: List; choice: Choice | undefined }) {
  const navigate = useNavigate();
  return (
    <Loaded query={list} what="The failed runs" rows={3}>
      {({ messages, cursor }) =>
        messages.length === 0 ? null : (
          <ListPanel
            label="Failed runs"
            title="Runs"
            columns={columns}
            rows={messages}
            keyOf={({ dlqId }) => dlqId}
            open={({ workflowRunId = "" }) =>
              void navigate({ to: `/runs/${encodeURIComponent(workflowRunId)}` })
            }
            choice={choice}
            words={["failed run", "failed runs"]}
            cursor={cursor}
            empty={null}
          />
        )
      }
    </Loaded>
  );
}

const columns: readonly Column<FailedRun>[] = [
  {
    head: "Run",
    className: "c-what",
    cell: ({ workflowRunId, dlqId }) => (
      <TwoLines first={<Whole text={workflowRunId ?? ""} />} second={<Id id={dlqId} />} />
    ),
  },
  {
    head: "Failed step",
    className: "c-why w-why",
    cell: ({ stepName, responseStatus, error }) => (
      <TwoLines
        first={<Shortened text={stepName ?? "No step"} />}
        second={
          <>
            {responseStatus !== undefined && <span className="code-bad">{responseStatus}</span>}
            <Shortened text={error} />
          </>
        }
      />
    ),
  },
  {
    head: "Started",
    className: "num time c-when w-m",
    cell: ({ workflowCreatedAt, createdAt }) => <Time at={workflowCreatedAt ?? createdAt} />,
  },
  {
    head: <span className="vh">Actions</span>,
    className: "act w-actions",
    cell: ({ dlqId }) => <Actions id={dlqId} />,
  },
];

function Actions({ id }: { id: string }) {
  const may = useMay();
  const act = useDo();
  if (!may.manage) return null;
  const params = { dlqId: id };
  const restart = () => send("POST /v2/workflows/dlq/restart/{dlqId}", { params });
  const resume = () => send("POST /v2/workflows/dlq/resume/{dlqId}", { params });
  return (
    <span className="actions end">
      <Button
        isSmall
        kind="ghost"
        icon={RotateCw}
        label="Restart from the beginning"
        onClick={() => void act(restart, "The run is started again")}
      />
      <Button isSmall icon={Play} onClick={() => void act(resume, "The run is resumed")}>
        Resume
      </Button>
    </span>
  );
}
