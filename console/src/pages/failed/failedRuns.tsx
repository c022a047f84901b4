import type { UseQueryResult } from "@tanstack/react-query";
import { useNavigate } from "@tanstack/react-router";
import { Play, RotateCw } from "lucide-react";
import { useState } from "react";
import type { Response } from "../../api/client.ts";
import { send } from "../../api/client.ts";
import { useChange, useRead } from "../../api/queries.ts";
import { useMay } from "../../api/session.ts";
import { Button, Id, Time } from "../../parts/basics.tsx";
import type { BulkRoute } from "../../parts/bulk.tsx";
import { Bulk } from "../../parts/bulk.tsx";
import type { FilterField } from "../../parts/filters.tsx";
import { FilterBar, Pager, useFilters } from "../../parts/filters.tsx";
import { Loaded, Panel } from "../../parts/panel.tsx";
import { Visible } from "../../parts/payload.tsx";
import type { Column } from "../../parts/table.tsx";
import { Table } from "../../parts/table.tsx";
import { Empty } from "../../parts/trouble.tsx";
import { formatCount, formatMany, splitUrl } from "../../parts/words.ts";
import { Page } from "../../shell/shell.tsx";
import { useDo } from "../../shell/toasts.tsx";

type Group = Response<"GET /v2/workflows/dlq/groups">["groups"][number];
type FailedRun = Response<"GET /v2/workflows/dlq">["messages"][number];

const fields: readonly FilterField[] = [
  { name: "workflowUrl", title: "Workflow", hint: "https://…" },
  { name: "workflowRunId", title: "Run" },
  { name: "label", title: "Label" },
  { name: "responseStatus", title: "Status" },
];

const acts = {
  Resume: {
    route: "POST /v2/workflows/dlq/resume",
    text: "Each is resumed from its failed step, in a new run.",
    isDangerous: false,
  },
  Restart: {
    route: "POST /v2/workflows/dlq/restart",
    text: "Each is started again from the beginning.",
    isDangerous: false,
  },
  Delete: { route: "DELETE /v2/workflows/dlq", text: "They cannot be resumed again.", isDangerous: true },
} as const satisfies Record<string, { route: BulkRoute; text: string; isDangerous: boolean }>;

/** The failed runs: grouped by cause, then one by one, with resume and restart. */
export function FailedRunsPage() {
  const { values } = useFilters();
  const query = Object.fromEntries(fields.map(({ name }) => [name, values[name]]));
  const groups = useRead("GET /v2/workflows/dlq/groups", { query });
  const list = useRead("GET /v2/workflows/dlq", { query: { count: 50, ...query, cursor: values["cursor"] } });
  const [act, setAct] = useState<keyof typeof acts | null>(null);
  return (
    <Page title="Failed runs">
      <div className="toolbar">
        <FilterBar fields={fields} fallback="workflowRunId" placeholder="Filter by run or workflow" />
        <span className="spring only-wide" />
        <Button isSmall onClick={() => setAct("Resume")}>
          Act on all
        </Button>
      </div>
      <Causes groups={groups} />
      {/* The list has its place only when the height of the causes is known. */}
      {!groups.isPending && <List list={list} />}
      {act && (
        <Bulk
          key={act}
          route={acts[act].route}
          query={query}
          verb={act}
          noun="failed run"
          consequence={acts[act].text}
          isDangerous={acts[act].isDangerous}
          close={() => setAct(null)}
        >
          <div className="seg" role="group" aria-label="Action">
            {(Object.keys(acts) as (keyof typeof acts)[]).map((one) => (
              <button key={one} type="button" aria-pressed={one === act} onClick={() => setAct(one)}>
                {one}
              </button>
            ))}
          </div>
        </Bulk>
      )}
    </Page>
  );
}

type Groups = UseQueryResult<Response<"GET /v2/workflows/dlq/groups">>;
type List = UseQueryResult<Response<"GET /v2/workflows/dlq">>;

function Causes({ groups }: { groups: Groups }) {
  const { set } = useFilters();
  return (
    <Loaded query={groups} what="The causes" rows={3}>
      {({ groups: found }) => (
        <Panel title="Causes" sub="the step and the error, the same for each run of a row">
          {found.length === 0 ? (
            <Empty title="No run has failed">
              <p>
                A run comes here when a step has failed for good. It can be resumed as long as it is kept.
              </p>
            </Empty>
          ) : (
            <Table
              label="Causes"
              className="two cards"
              columns={causes}
              rows={found}
              keyOf={({ dlqId }) => dlqId}
              open={({ workflowUrl }) => set({ workflowUrl })}
            />
          )}
        </Panel>
      )}
    </Loaded>
  );
}

const causes: readonly Column<Group>[] = [
  {
    head: "Failed at",
    className: "c-what",
    cell: ({ stepName, afterStep, workflowUrl }) => (
      <>
        <div className="l1">
          <span className="t host">
            {stepName ?? (afterStep === undefined ? "its start" : `after ${afterStep}`)}
          </span>
        </div>
        <div className="l2">
          <span className="t">{splitUrl(workflowUrl).path || workflowUrl}</span>
        </div>
      </>
    ),
  },
  {
    head: "Error",
    className: "c-why w-why",
    cell: ({ error }) => (
      <div className="l1">
        <span className="t">
          <Visible text={error} />
        </span>
      </div>
    ),
  },
  { head: "Runs", className: "num c-when w-s", cell: ({ count }) => <b>{formatCount(count)}</b> },
  { head: "First", className: "num time p3 w-m", cell: ({ firstFailedAt }) => <Time at={firstFailedAt} /> },
  { head: "Last", className: "num time p2 w-m", cell: ({ lastFailedAt }) => <Time at={lastFailedAt} /> },
];

function List({ list }: { list: List }) {
  const navigate = useNavigate();
  return (
    <Loaded query={list} what="The failed runs" rows={3}>
      {({ messages, cursor }) =>
        messages.length === 0 ? null : (
          <Panel
            title="Runs"
            footer={
              <>
                <span>{formatMany(messages.length, "failed run")}</span>
                <Pager cursor={cursor} />
              </>
            }
          >
            <Table
              label="Failed runs"
              className="two cards"
              columns={columns}
              rows={messages}
              keyOf={({ dlqId }) => dlqId}
              open={({ workflowRunId = "" }) =>
                void navigate({ to: `/runs/${encodeURIComponent(workflowRunId)}` })
              }
            />
          </Panel>
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
      <>
        <div className="l1">
          <span className="t host">{workflowRunId}</span>
        </div>
        <div className="l2">
          <Id id={dlqId} />
        </div>
      </>
    ),
  },
  {
    head: "Failed at",
    className: "c-why w-why",
    cell: ({ stepName, responseStatus, error }) => (
      <>
        <div className="l1">
          <span className="t">{stepName ?? "its start"}</span>
        </div>
        <div className="l2">
          {responseStatus !== undefined && <span className="code-bad">{responseStatus}</span>}
          <span className="t">
            <Visible text={(error ?? "").slice(0, 200)} />
          </span>
        </div>
      </>
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
    cell: ({ dlqId }) => <Mend id={dlqId} />,
  },
];

function Mend({ id }: { id: string }) {
  const may = useMay();
  const act = useDo();
  const change = useChange((run: () => Promise<unknown>) => run());
  if (!may.manage) return null;
  return (
    <span className="actions end">
      <Button
        isSmall
        kind="ghost"
        icon={RotateCw}
        label="Restart from the beginning"
        onClick={() =>
          void act(
            () =>
              change.mutateAsync(() =>
                send("POST /v2/workflows/dlq/restart/{dlqId}", { params: { dlqId: id } }),
              ),
            "The run is started again",
          )
        }
      />
      <Button
        isSmall
        icon={Play}
        onClick={() =>
          void act(
            () =>
              change.mutateAsync(() =>
                send("POST /v2/workflows/dlq/resume/{dlqId}", { params: { dlqId: id } }),
              ),
            "The run is resumed",
          )
        }
      >
        Resume
      </Button>
    </span>
  );
}
