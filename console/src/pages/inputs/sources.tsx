import { Trash2 } from "lucide-react";
import type { Response } from "../../api/client.ts";
import { send } from "../../api/client.ts";
import { useRead } from "../../api/queries.ts";
import { ConfirmButton } from "../../parts/actions.tsx";
import { Time, Url } from "../../parts/basics.tsx";
import { ListPanel } from "../../parts/list.tsx";
import { Loaded } from "../../parts/panel.tsx";
import { State } from "../../parts/state.tsx";
import type { Column } from "../../parts/table.tsx";
import { Empty } from "../../parts/trouble.tsx";
import { formatCount, formatMany } from "../../parts/words.ts";
import { Page } from "../../shell/shell.tsx";
import { Visible } from "../../parts/visible.tsx";

type Source = Response<"GET /v2/sources">["sources"][number];

/** The sources: URLs for senders of webhooks. */
export function SourcesPage() {
  const sources = useRead("GET /v2/sources", { query: { count: 100 } });
  return (
    <Page title="Sources" count={sources.data && formatMany(sources.data.sources.length, "source")}>
      <Loaded query={sources} what="The sources">
        {({ sources: rows }) => (
          <ListPanel
            label="Sources"
            columns={columns}
            rows={rows}
            keyOf={({ sourceId }) => sourceId}
            empty={
              <Empty title="No sources yet">
                <p>
                  A source is a URL for one sender of webhooks. Its calls are verified and published to a
                  destination. POST /v2/sources creates a source.
                </p>
              </Empty>
            }
          />
        )}
      </Loaded>
    </Page>
  );
}

const columns: readonly Column<Source>[] = [
  {
    head: "State",
    className: "c-state w-state",
    cell: ({ paused }) => (
      <State state={paused ? "paused" : "delivered"} word={paused ? "Paused" : "Active"} />
    ),
  },
  {
    head: "Source",
    className: "c-what",
    cell: ({ name, destination }) => (
      <>
        <div className="l1">
          <span className="t host">
            <Visible text={name || "unnamed"} />
          </span>
        </div>
        <div className="l2">
          <Url url={destination} />
        </div>
      </>
    ),
  },
  {
    head: "Verified by",
    className: "c-why w-where",
    cell: ({ verification }) => verification?.scheme ?? "not verified",
  },
  {
    head: "Rejected",
    className: "num p2 w-s",
    cell: ({ rejected }) => <span className={rejected > 0 ? "code-bad" : ""}>{formatCount(rejected)}</span>,
  },
  {
    head: "Last call",
    className: "num time c-when w-m",
    cell: ({ acceptedAt }) => (acceptedAt ? <Time at={acceptedAt} /> : "never"),
  },
  {
    head: <span className="vh">Actions</span>,
    className: "act w-act",
    cell: (source) => <DeleteSource source={source} />,
  },
];

const DeleteSource = ({ source: { sourceId, name } }: { source: Source }) => (
  <ConfirmButton
    title={`Delete source ${name || sourceId}`}
    verb="Delete source"
    icon={Trash2}
    act={() => send("DELETE /v2/sources/{sourceId}", { params: { sourceId } })}
  >
    <p>Calls to its URL are refused at once.</p>
  </ConfirmButton>
);
