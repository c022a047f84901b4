import { ChevronRight, RotateCw, Trash2 } from "lucide-react";
import { useState } from "react";
import type { Response } from "../../api/client.ts";
import { pace, useRead } from "../../api/queries.ts";
import { useMay } from "../../api/session.ts";
import { Button, Icon, Time, Url } from "../../parts/basics.tsx";
import type { Filter } from "../../operations/jobs/bulk.tsx";
import { Bulk } from "../../operations/jobs/bulk.tsx";
import { MessageCell, responseColumn } from "../../parts/cells.tsx";
import type { FilterField } from "../../parts/filters.tsx";
import { FilterBar, useFilters } from "../../parts/filters.tsx";
import { ListPanel } from "../../parts/list.tsx";
import { PageLink } from "../../parts/link.tsx";
import { Loaded, Panel } from "../../parts/panel.tsx";
import { showHidden } from "../../parts/hidden.ts";
import { Spark } from "../../parts/spark.tsx";
import { Visible } from "../../parts/visible.tsx";
import { oldestFirst, OrderSelect } from "../../parts/orderSelect.tsx";
import { ActButton, useChosen } from "../../parts/chosen.tsx";
import { TabCount, tabsClass } from "../../parts/tabCount.tsx";
import { findDifference, titleOf } from "../../parts/groupTitles.ts";
import type { Choice, Column } from "../../parts/table.tsx";
import { isControl } from "../../parts/table.tsx";
import { Empty } from "../../parts/trouble.tsx";
import { formatCount, formatMany, shortId } from "../../parts/words.ts";
import { InDrawer, Page } from "../../shell/shell.tsx";
import type { ChangeDraft } from "./change.tsx";
import { ChangeFields, readChange } from "./change.tsx";
import { DeadLetterDrawer } from "./deadLetter.tsx";

type Group = Response<"GET /v2/dlq/groups">["groups"][number];
type DeadLetter = Response<"GET /v2/dlq">["messages"][number];
/**
 * A bulk action that is being planned: on those of one group, or if the filter is null, on the chosen ones or
 * on all of the page.
 */
type Plan = { does: "retry" | "change" | "delete"; query: Filter | null };

const fields: readonly FilterField[] = [
  { name: "label", title: "Label" },
  { name: "url", title: "URL", hint: "https://…" },
  { name: "responseStatus", title: "Status" },
  { name: "cause", title: "Cause" },
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
  // The overview leads here with the action that it proposes.
  const [plan, setPlan] = useState<Plan | null>(
    values["act"] === "retry" ? { does: "retry", query: null } : null,
  );
  const query = Object.fromEntries(fields.map(({ name }) => [name, values[name]]));
  const isList = values["view"] === "list";
  const { open } = values;
  const cause = useCauseTitle(values["cause"]);
  const chosen = useChosen(JSON.stringify([query, isList, values["cursor"]]));
  const filter = plan?.query ?? (chosen.ids.length > 0 ? { dlqIds: chosen.ids } : query);
  return (
    <Page title="Dead letters">
      <ViewTabs isList={isList} />
      <div className="toolbar">
        <FilterBar
          fields={fields}
          words={{ cause }}
          fallback="label"
          placeholder="Filter by label, URL or id"
        />
        <span className="spring only-wide" />
        {isList && <OrderSelect orders={oldestFirst} />}
        <ActButton
          chosen={chosen}
          isActing={plan !== null}
          setActing={(isActing) => setPlan(isActing ? { does: "retry", query: null } : null)}
        />
      </div>
      {plan && (
        <DeadLetterBulk
          key={JSON.stringify([plan, filter])}
          plan={plan}
          filter={filter}
          set={setPlan}
          close={() => {
            setPlan(null);
            chosen.clear();
            if (values["act"] !== undefined) set({ act: undefined });
          }}
        />
      )}
      {isList ? (
        <DeadLetterList query={query} choice={chosen.choice} />
      ) : (
        <Groups query={query} plan={setPlan} />
      )}
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

/** The two views, with the counts of all dead letters. */
function ViewTabs({ isList }: { isList: boolean }) {
  const { set } = useFilters();
  // If the largest group is counted as a whole, all groups are.
  const counts = useRead("GET /v2/dlq/groups", { query: { count: 1 } }, { every: pace.slow });
  const all = counts.data;
  const more = all && (all.more === true || all.groups.some(isCut));
  return (
    <div className={tabsClass("seg", counts)} role="group" aria-label="View">
      <button type="button" aria-pressed={!isList} onClick={() => set({ view: undefined })}>
        Groups <TabCount of={all && { count: all.causes, more: all.more }} />
      </button>
      <button type="button" aria-pressed={isList} onClick={() => set({ view: "list" })}>
        List <TabCount of={all && { count: all.entries, more }} />
      </button>
    </div>
  );
}

/** Returns the words for a cause: the error and the URL of its group. */
function useCauseTitle(cause: string | undefined): string | undefined {
  const { data } = useRead("GET /v2/dlq/groups", { query: { cause } }, { enabled: cause !== undefined });
  const group = cause === undefined ? undefined : data?.groups.find((one) => one.cause === cause);
  return group && `“${titleOf(group)}” at ${group.url.replace(/^https?:\/\//, "")}`;
}

const actions = { retry: "Retry", change: "Change and retry", delete: "Delete" } as const;
const consequences = {
  retry: "Each is published again as a new message, oldest first.",
  change: "Each is changed and published as a new message, oldest first. Messages that it does not fit stay.",
  delete: "They can no longer be retried.",
} as const;

/** Acts on the dead letters of a filter or of one group: retries, changes and retries, or deletes them. */
type DeadLetterBulkProps = { plan: Plan; filter: Filter; set(plan: Plan): void; close(): void };

function DeadLetterBulk({ plan, filter, set, close }: DeadLetterBulkProps) {
  const [draft, setDraft] = useState<ChangeDraft>({ url: "", headers: "", patch: "" });
  const { does } = plan;
  return (
    <Bulk
      action={does === "delete" ? "dlq.delete" : "dlq.retry"}
      filter={filter}
      consequence={consequences[does]}
      hasCanary={does !== "delete"}
      isDangerous={does === "delete"}
      isChosen={filter["dlqIds"] !== undefined}
      close={close}
      {...(does === "change" && {
        change: readChange(draft),
        fields: <ChangeFields draft={draft} set={setDraft} />,
      })}
    >
      <div className="seg" role="group" aria-label="Action">
        {(["retry", "change", "delete"] as const).map((one) => (
          <button
            key={one}
            type="button"
            aria-pressed={does === one}
            onClick={() => set({ ...plan, does: one })}
          >
            {actions[one]}
          </button>
        ))}
      </div>
    </Bulk>
  );
}

type GroupsProps = { query: Readonly<Record<string, string | undefined>>; plan(plan: Plan): void };

function Groups({ query, plan }: GroupsProps) {
  const groups = useRead("GET /v2/dlq/groups", { query });
  return (
    <Loaded query={groups} what="The groups">
      {({ groups: found, entries, causes, more }) => (
        <Panel
          title={formatMany(causes, "group by error and URL", "groups by error and URL")}
          sub={`of ${formatMany(entries, "dead letter")}${more || found.some(isCut) ? " or more" : ""}`}
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
                <span>Last 24 h</span>
                <span className="r">Count</span>
                <span className="r">First</span>
                <span className="r">Last</span>
              </div>
              {found.map((group) => (
                <GroupRow
                  key={group.cause}
                  group={group}
                  differsBy={findDifference(group, found)}
                  query={query}
                  plan={plan}
                />
              ))}
            </>
          )}
        </Panel>
      )}
    </Loaded>
  );
}

const isCut = ({ countIsMinimum }: Group): boolean => countIsMinimum === true;

function GroupRow({ group, differsBy, query, plan }: GroupsProps & { group: Group; differsBy: string }) {
  const [isOpen, setIsOpen] = useState(false);
  const may = useMay();
  const error = titleOf(group);
  const name = showHidden(`${error}, ${group.url}`);
  const of = { ...query, cause: group.cause };
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
          <GroupTitle group={group} differsBy={differsBy} />
          <div className="l2">
            <Url url={group.url} />
          </div>
        </div>
        <Spark counts={group.trend} />
        <span className="count">{`${formatCount(group.count)}${isCut(group) ? "+" : ""}`}</span>
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

/** The status and the error of a group, and the part of its URL by which it differs from its likes. */
function GroupTitle({ group, differsBy }: { group: Group; differsBy: string }) {
  const error = titleOf(group);
  return (
    <div className="l1">
      {group.responseStatus !== undefined && <b className="code-bad">{group.responseStatus}</b>}
      <span className="t whole" title={`${error}, ${group.url}`}>
        <b>
          “<Visible text={error} />”
        </b>
        {differsBy !== "" && (
          <>
            {" "}
            at <Visible text={differsBy} />
          </>
        )}
      </span>
    </div>
  );
}

type DeadLetterListProps = { query: GroupsProps["query"]; choice?: Choice | undefined };

function DeadLetterList({ query, choice }: DeadLetterListProps) {
  const { values, set } = useFilters();
  const { cursor: page, order } = values;
  const list = useRead("GET /v2/dlq", { query: { count: 50, ...query, order, cursor: page } });
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
          choice={choice}
          words={["dead letter", "dead letters"]}
          cursor={cursor}
          empty={<Empty title="No dead letters match" />}
        />
      )}
    </Loaded>
  );
}

/** The message that replays a dead letter. */
const PublishedAgain = ({ as: messageId }: { as: string | undefined }) =>
  messageId === undefined ? null : (
    <span className="t">
      published again as{" "}
      <PageLink to="/messages" search={{ open: messageId }}>
        {shortId(messageId)}
      </PageLink>
    </span>
  );

const columns: readonly Column<DeadLetter>[] = [
  {
    head: "Dead letter",
    className: "c-what",
    cell: ({ dlqId, method, url, label, replays = [] }) => (
      <MessageCell id={dlqId} method={method} url={url} label={label}>
        <PublishedAgain as={replays.at(-1)} />
      </MessageCell>
    ),
  },
  responseColumn(),
  { head: "Accepted", className: "num time c-when w-m", cell: ({ createdAt }) => <Time at={createdAt} /> },
];
