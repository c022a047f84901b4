import { ChevronRight, RotateCw, Trash2 } from "lucide-react";
import { useState } from "react";
import type { Response } from "../../api/client.ts";
import { useRead } from "../../api/queries.ts";
import { useMay } from "../../api/session.ts";
import { Button, Icon, Time, Url } from "../../parts/basics.tsx";
import { Bulk } from "../../operations/jobs/bulk.tsx";
import { MessageCell, responseColumn } from "../../parts/cells.tsx";
import type { FilterField } from "../../parts/filters.tsx";
import { FilterBar, useFilters } from "../../parts/filters.tsx";
import { ListPanel } from "../../parts/list.tsx";
import { Loaded, Panel } from "../../parts/panel.tsx";
import { showHidden } from "../../parts/hidden.ts";
import { Visible } from "../../parts/visible.tsx";
import type { Column } from "../../parts/table.tsx";
import { isControl } from "../../parts/table.tsx";
import { Empty } from "../../parts/trouble.tsx";
import { fillStatus, formatCount, formatMany } from "../../parts/words.ts";
import { InDrawer, Page } from "../../shell/shell.tsx";
import { DeadLetterDrawer } from "./deadLetter.tsx";

type Group = Response<"GET /v2/dlq/groups">["groups"][number];
type DeadLetter = Response<"GET /v2/dlq">["messages"][number];
/** A bulk action that is being planned: on all dead letters of a filter, or on those of one group. */
type Plan = { does: "retry" | "delete"; query: Readonly<Record<string, string | undefined>> };

const fields: readonly FilterField[] = [
  { name: "label", title: "Label" },
  { name: "url", title: "URL", hint: "https://…" },
  { name: "responseStatus", title: "Status" },
  { name: "queueName", title: "Queue" },
  { name: "flowControlKey", title: "Key" },
  { name: "topicName", title: "URL group" },
  { name: "scheduleId", title: "Schedule" },
  { name: "messageId", title: "Message", hint: "msg_…" },
  { name: "callerIP", title: "Caller" },
];

/** The dead letters: in groups by error and destination, or as a list, with the actions. */
export function DeadLettersPage() {
  const { values, set } = useFilters();
  const may = useMay();
  const [plan, setPlan] = useState<Plan | null>(null);
  const query = Object.fromEntries(fields.map(({ name }) => [name, values[name]]));
  const isList = values["view"] === "list";
  const { open } = values;
  return (
    <Page title="Dead letters">
      <div className="toolbar">
        <div className="seg" role="group" aria-label="View">
          <button type="button" aria-pressed={!isList} onClick={() => set({ view: undefined })}>
            Groups
          </button>
          <button type="button" aria-pressed={isList} onClick={() => set({ view: "list" })}>
            List
          </button>
        </div>
        <FilterBar fields={fields} fallback="label" placeholder="Filter by label, URL or id" />
        <span className="spring only-wide" />
        {may.manage && (
          <Button isSmall onClick={() => setPlan({ does: "retry", query })}>
            Act on all
          </Button>
        )}
      </div>
      {plan && (
        <Bulk
          key={JSON.stringify(plan)}
          action={plan.does === "retry" ? "dlq.retry" : "dlq.delete"}
          filter={plan.query}
          consequence={
            plan.does === "retry"
              ? "Each is published again as a new message, oldest first."
              : "They can no longer be retried."
          }
          hasCanary={plan.does === "retry"}
          isDangerous={plan.does === "delete"}
          close={() => setPlan(null)}
        >
          <div className="seg" role="group" aria-label="Action">
            {(["retry", "delete"] as const).map((does) => (
              <button
                key={does}
                type="button"
                aria-pressed={plan.does === does}
                onClick={() => setPlan({ ...plan, does })}
              >
                {does === "retry" ? "Retry" : "Delete"}
              </button>
            ))}
          </div>
        </Bulk>
      )}
      {isList ? <DeadLetterList query={query} /> : <Groups query={query} plan={setPlan} />}
      {open !== undefined && (
        <InDrawer>
          <DeadLetterDrawer
            key={open}
            id={open}
            close={() => set({ open: undefined, cursor: values["cursor"], back: values["back"] })}
          />
        </InDrawer>
      )}
    </Page>
  );
}

type GroupsProps = { query: Plan["query"]; plan(plan: Plan): void };

function Groups({ query, plan }: GroupsProps) {
  const groups = useRead("GET /v2/dlq/groups", { query });
  return (
    <Loaded query={groups} what="The groups">
      {({ groups: found, entries, more }) => (
        <Panel
          title={formatMany(found.length, "group by error and URL", "groups by error and URL")}
          sub={`of ${formatMany(entries, "dead letter")}${more ? " or more" : ""}`}
        >
          {found.length === 0 ? (
            <Empty title="No dead letters">
              <p>
                A message becomes a dead letter if its last retry fails. You can retry it until it expires.
              </p>
            </Empty>
          ) : (
            <>
              <div className="group-head short" aria-hidden="true">
                <span />
                <span>Error and URL</span>
                <span className="r">Count</span>
                <span className="r">First</span>
                <span className="r">Last</span>
              </div>
              {found.map((group) => (
                <GroupRow key={group.dlqId} group={group} query={query} plan={plan} />
              ))}
            </>
          )}
        </Panel>
      )}
    </Loaded>
  );
}

function GroupRow({ group, query, plan }: GroupsProps & { group: Group }) {
  const [isOpen, setIsOpen] = useState(false);
  const may = useMay();
  const error = fillStatus(group.error || "no response", group.responseStatus);
  const name = showHidden(`${error}, ${group.url}`);
  const of = {
    ...query,
    url: group.url,
    ...(group.responseStatus !== undefined && { responseStatus: String(group.responseStatus) }),
  };
  return (
    <article className="group">
      <div className="group-row short" onClick={(event) => !isControl(event.target) && setIsOpen(!isOpen)}>
        <button
          type="button"
          className="expander"
          aria-expanded={isOpen}
          aria-label={`Show the dead letters: ${name}`}
          onClick={() => setIsOpen(!isOpen)}
        >
          <Icon of={ChevronRight} />
        </button>
        <div>
          <div className="l1">
            {group.responseStatus !== undefined && <b className="code-bad">{group.responseStatus}</b>}
            <span className="t">
              <b>
                <Visible text={error} />
              </b>
            </span>
          </div>
          <div className="l2">
            <Url url={group.url} />
          </div>
        </div>
        <span className="count">{formatCount(group.count)}</span>
        <span className="time r muted">
          <span className="vh">first </span>
          <Time at={group.firstFailedAt} />
        </span>
        <span className="time r muted">
          <span className="vh">last </span>
          <Time at={group.lastFailedAt} />
        </span>
        {may.manage && (
          <span className="act">
            <Button
              isSmall
              icon={RotateCw}
              aria-label={`Retry: ${name}`}
              onClick={() => plan({ does: "retry", query: of })}
            >
              Retry
            </Button>
            <Button
              isSmall
              kind="ghost"
              icon={Trash2}
              label={`Delete: ${name}`}
              onClick={() => plan({ does: "delete", query: of })}
            />
          </span>
        )}
      </div>
      {isOpen && <DeadLetterList query={of} />}
    </article>
  );
}

function DeadLetterList({ query }: { query: Plan["query"] }) {
  const { values, set } = useFilters();
  const list = useRead("GET /v2/dlq", { query: { count: 50, ...query, cursor: values["cursor"] } });
  return (
    <Loaded query={list} what="The dead letters">
      {({ messages, cursor }) => (
        <ListPanel
          label="Dead letters"
          columns={columns}
          rows={messages}
          keyOf={({ dlqId }) => dlqId}
          open={({ dlqId }) => set({ open: dlqId, cursor: values["cursor"], back: values["back"] })}
          openKey={values["open"]}
          words={["dead letter", "dead letters"]}
          cursor={cursor}
          empty={<Empty title="No dead letters match" />}
        />
      )}
    </Loaded>
  );
}

const columns: readonly Column<DeadLetter>[] = [
  {
    head: "Dead letter",
    className: "c-what",
    cell: ({ dlqId, method, url, label, replays = [] }) => (
      <MessageCell id={dlqId} method={method} url={url} label={label}>
        {replays.length > 0 && <span className="t">published again</span>}
      </MessageCell>
    ),
  },
  responseColumn(),
  { head: "Accepted", className: "num time c-when w-m", cell: ({ createdAt }) => <Time at={createdAt} /> },
];
