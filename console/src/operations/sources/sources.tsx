import { Plus, RotateCcw, Trash2 } from "lucide-react";
import { useState } from "react";
import { send } from "../../api/client.ts";
import { useRead } from "../../api/queries.ts";
import { useMay } from "../../api/session.ts";
import { ConfirmButton, PauseButton } from "../../parts/actions.tsx";
import { Button, Time, Url } from "../../parts/basics.tsx";
import { ListPanel } from "../../parts/list.tsx";
import { Loaded } from "../../parts/panel.tsx";
import { NewSecret } from "../../parts/secret.tsx";
import { State } from "../../parts/state.tsx";
import type { Column } from "../../parts/table.tsx";
import { Empty } from "../../parts/trouble.tsx";
import { formatCount, formatMany } from "../../parts/words.ts";
import { Page } from "../../shell/shell.tsx";
import { Rejections } from "./rejections.tsx";
import type { Source } from "./sourceForm.tsx";
import { SourceForm } from "./sourceForm.tsx";
import { Visible } from "../../parts/visible.tsx";

/** The sources: URLs for senders of webhooks. */
export function SourcesPage() {
  const sources = useRead("GET /v2/sources", { query: { count: 100 } });
  const may = useMay();
  const [isNew, setIsNew] = useState(false);
  const [made, setMade] = useState<Made | null>(null);
  const done = (url: string, name: string): void => setMade({ url, name });
  return (
    <Page title="Sources" count={sources.data && formatMany(sources.data.sources.length, "source")}>
      {may.manage && (
        <div className="toolbar">
          <span className="spring" />
          <Button icon={Plus} onClick={() => setIsNew(true)}>
            New source
          </Button>
        </div>
      )}
      {made && (
        <NewSecret title={`URL of source “${made.name}”`} secret={made.url}>
          Give this URL to the sender. It contains a secret and is not shown again.
        </NewSecret>
      )}
      <Loaded query={sources} what="The sources">
        {({ sources: rows }) => (
          <ListPanel
            label="Sources"
            columns={[
              ...columns,
              {
                head: <span className="vh">Actions</span>,
                className: "act w-source",
                cell: (source) => <Actions source={source} done={done} />,
              },
            ]}
            rows={rows}
            keyOf={({ sourceId }) => sourceId}
            empty={
              <Empty title="No sources yet">
                <p>
                  A source is a URL for one sender of webhooks. Its calls are verified and published to a
                  destination.
                </p>
              </Empty>
            }
          />
        )}
      </Loaded>
      {isNew && <SourceForm close={() => setIsNew(false)} done={done} />}
    </Page>
  );
}

/** A new URL of a source. */
type Made = { url: string; name: string };

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
    head: "Accepted",
    className: "num p2 w-s c-more",
    cell: ({ accepted }) => formatCount(accepted),
  },
  {
    head: "Rejected",
    className: "num p2 w-s c-more",
    cell: ({ rejected }) => <span className={rejected > 0 ? "code-bad" : ""}>{formatCount(rejected)}</span>,
  },
  {
    head: "Last call",
    className: "num time c-when w-m",
    cell: ({ lastCallAt }) => (lastCallAt ? <Time at={lastCallAt} /> : "never"),
  },
];

type ActionsProps = { source: Source; done(url: string, name: string): void };

function Actions({ source, done }: ActionsProps) {
  const { sourceId, name } = source;
  const may = useMay();
  const [open, setOpen] = useState<"form" | "rejections" | null>(null);
  const params = { sourceId };
  const change = (paused: boolean) => send("PATCH /v2/sources/{sourceId}", { params, body: { paused } });
  const rotate = async (): Promise<void> => {
    const { url } = await send("POST /v2/sources/{sourceId}/rotate", { params });
    done(url, name);
  };
  const close = (): void => setOpen(null);
  return (
    <span className="actions end">
      {source.rejected > 0 && (
        <Button isSmall onClick={() => setOpen("rejections")}>
          Rejected
        </Button>
      )}
      <ConfirmButton
        title={`New URL for source ${name || sourceId}`}
        verb="Replace URL"
        icon={RotateCcw}
        act={rotate}
      >
        <p>Calls to the old URL are refused at once.</p>
      </ConfirmButton>
      <ConfirmButton
        title={`Delete source ${name || sourceId}`}
        verb="Delete source"
        icon={Trash2}
        act={() => send("DELETE /v2/sources/{sourceId}", { params })}
      >
        <p>Calls to its URL are refused at once.</p>
      </ConfirmButton>
      {may.manage && (
        <Button isSmall onClick={() => setOpen("form")}>
          Edit
        </Button>
      )}
      <PauseButton
        name={`Source ${name || sourceId}`}
        isPaused={source.paused}
        pause={() => change(true)}
        resume={() => change(false)}
      />
      {open === "form" && <SourceForm source={source} close={close} done={done} />}
      {open === "rejections" && <Rejections source={source} close={close} />}
    </span>
  );
}
