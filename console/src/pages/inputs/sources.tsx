import { Trash2 } from "lucide-react";
import { useState } from "react";
import type { Response } from "../../api/client.ts";
import { send } from "../../api/client.ts";
import { useChange, useRead } from "../../api/queries.ts";
import { useMay } from "../../api/session.ts";
import { Button, Time, Url } from "../../parts/basics.tsx";
import { Confirm } from "../../parts/dialog.tsx";
import { Loaded, Panel } from "../../parts/panel.tsx";
import { State } from "../../parts/state.tsx";
import type { Column } from "../../parts/table.tsx";
import { Table } from "../../parts/table.tsx";
import { Empty } from "../../parts/trouble.tsx";
import { formatCount, formatMany } from "../../parts/words.ts";
import { Page } from "../../shell/shell.tsx";

type Source = Response<"GET /v2/sources">["sources"][number];

/** The sources: webhooks that are received, verified and published. */
export function SourcesPage() {
  const sources = useRead("GET /v2/sources", { query: { count: 100 } });
  return (
    <Page title="Sources" count={sources.data && formatMany(sources.data.sources.length, "source")}>
      <Loaded query={sources} what="The sources">
        {({ sources: rows }) => (
          <Panel>
            {rows.length === 0 ? (
              <Empty title="No sources yet">
                <p>
                  A source has its own URL for a sender of webhooks. Calls are verified and published to its
                  destination. POST /v2/sources creates one.
                </p>
              </Empty>
            ) : (
              <Table
                label="Sources"
                className="two cards"
                columns={columns}
                rows={rows}
                keyOf={({ sourceId }) => sourceId}
              />
            )}
          </Panel>
        )}
      </Loaded>
    </Page>
  );
}

const columns: readonly Column<Source>[] = [
  {
    head: "State",
    className: "c-state w-state",
    cell: ({ paused }) => <State state={paused ? "paused" : "delivered"} word={paused ? "Paused" : "Open"} />,
  },
  {
    head: "Source",
    className: "c-what",
    cell: ({ name, destination }) => (
      <>
        <div className="l1">
          <span className="t host">{name}</span>
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
    cell: ({ verification }) => verification?.scheme ?? "nothing",
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

function DeleteSource({ source: { sourceId, name } }: { source: Source }) {
  const may = useMay();
  const [isAsking, setIsAsking] = useState(false);
  const remove = useChange(() => send("DELETE /v2/sources/{sourceId}", { params: { sourceId } }));
  return may.manage ? (
    <>
      <Button
        isSmall
        kind="ghost"
        icon={Trash2}
        label={`Delete source ${name}`}
        onClick={() => setIsAsking(true)}
      />
      <Confirm
        title={`Delete source ${name}`}
        verb="Delete source"
        isOpen={isAsking}
        close={() => setIsAsking(false)}
        act={() => remove.mutateAsync(undefined)}
      >
        <p>Its URL stops working at once. Calls to it are refused.</p>
      </Confirm>
    </>
  ) : null;
}
