import { Plus, RotateCcw, Trash2 } from "lucide-react";
import { useState } from "react";
import type { Response } from "../../api/client.ts";
import { send } from "../../api/client.ts";
import { useRead } from "../../api/queries.ts";
import { useMay } from "../../api/session.ts";
import { ConfirmButton, PauseButton } from "../../parts/actions.tsx";
import { Button, Time, Url } from "../../parts/basics.tsx";
import { Whole } from "../../parts/cells.tsx";
import type { Condition, Reasons } from "../../parts/conditions.ts";
import { useReasons } from "../../parts/conditions.ts";
import { useFilters } from "../../parts/filters.tsx";
import { ListPanel } from "../../parts/list.tsx";
import { Loaded } from "../../parts/panel.tsx";
import { Reason } from "../../parts/reason.tsx";
import { NewSecret } from "../../parts/secret.tsx";
import { State } from "../../parts/state.tsx";
import type { Column } from "../../parts/table.tsx";
import { Empty } from "../../parts/trouble.tsx";
import { formatCount, formatMany } from "../../parts/words.ts";
import { Page } from "../../shell/shell.tsx";
import { Rejections } from "./rejections.tsx";
import type { Source } from "./sourceForm.tsx";
import { SourceForm } from "./sourceForm.tsx";

/** The sources: URLs for senders of webhooks. */
export function SourcesPage() {
  const { values } = useFilters();
  const sources = useRead("GET /v2/sources", { query: { count: 100, cursor: values["cursor"] } });
  // The server finds the sources that have rejected calls of late.
  const reasons = useReasons("source");
  const may = useMay();
  const [isNew, setIsNew] = useState(false);
  const [made, setMade] = useState<Made | null>(null);
  const done = (url: string, name: string): void => setMade({ url, name });
  return (
    <Page title="Sources" count={sources.data && describeCount(sources.data)}>
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
        {({ sources: rows, cursor }) =>
          // The rows wait for their reasons, so that nothing moves.
          !reasons.isPending && (
            <ListPanel
              label="Sources"
              columns={[
                ...makeColumns(reasons),
                {
                  head: <span className="vh">Actions</span>,
                  className: "act w-source",
                  cell: (source) => <Actions source={source} done={done} />,
                },
              ]}
              rows={rows}
              cursor={cursor}
              words={["source", "sources"]}
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
          )
        }
      </Loaded>
      {isNew && <SourceForm close={() => setIsNew(false)} done={done} />}
    </Page>
  );
}

/** A new URL of a source. */
type Made = { url: string; name: string };

/** Returns the number of sources, if they are on one page. */
const describeCount = ({ sources, cursor }: Response<"GET /v2/sources">): string | undefined =>
  cursor === undefined ? formatMany(sources.length, "source") : undefined;

const makeColumns = ({ of }: Reasons): Column<Source>[] => [
  {
    head: "State",
    className: "c-state w-state",
    cell: ({ sourceId, paused }) =>
      paused ? (
        <State state="paused" word="Paused" />
      ) : of(sourceId) ? (
        <State state="failed" word="Rejecting" />
      ) : (
        <State state="delivered" word="Active" />
      ),
  },
  {
    head: "Source",
    className: "c-what",
    sortBy: ({ name }) => name,
    cell: ({ name, destination }) => (
      <>
        <div className="l1">
          <Whole text={name || "unnamed"} isName />
        </div>
        <div className="l2">
          <Url url={destination} />
        </div>
      </>
    ),
  },
  {
    head: "Why",
    className: "c-why w-why4",
    cell: (source) => <SourceReason source={source} condition={of(source.sourceId)} />,
  },
  {
    head: "Verified by",
    className: "p5 w-s c-more",
    cell: ({ verification }) => verification?.scheme ?? "not verified",
  },
  {
    head: "Accepted",
    className: "num p5 w-s c-more",
    sortBy: ({ accepted }) => accepted,
    cell: ({ accepted }) => formatCount(accepted),
  },
  {
    head: "Rejected",
    className: "num p3 w-s c-more",
    sortBy: ({ rejected }) => rejected,
    cell: ({ rejected }) => <span className={rejected > 0 ? "code-bad" : ""}>{formatCount(rejected)}</span>,
  },
  {
    head: "Last call",
    className: "num time p3 c-when w-where",
    sortBy: ({ lastCallAt = 0 }) => lastCallAt,
    cell: ({ lastCallAt }) => (lastCallAt ? <Time at={lastCallAt} /> : "never"),
  },
];

/**
 * Why a source publishes nothing, and the button that shows its rejected calls. A paused source has its
 * button at the end of the row.
 */
function SourceReason({ source, condition }: { source: Source; condition: Condition | undefined }) {
  const [isOpen, setIsOpen] = useState(false);
  const { sourceId, name, paused, rejected } = source;
  const isRejecting = condition?.kind === "source.rejecting";
  return (
    <Reason
      condition={condition}
      name={name || sourceId}
      otherwise={paused ? "Is paused and rejects all calls" : ""}
    >
      {rejected > 0 && (
        <Button isSmall {...(!isRejecting && { kind: "ghost" as const })} onClick={() => setIsOpen(true)}>
          Rejected
        </Button>
      )}
      {isOpen && <Rejections source={source} close={() => setIsOpen(false)} />}
    </Reason>
  );
}

type ActionsProps = { source: Source; done(url: string, name: string): void };

function Actions({ source, done }: ActionsProps) {
  const { sourceId, name } = source;
  const may = useMay();
  const [isForm, setIsForm] = useState(false);
  const params = { sourceId };
  const change = (paused: boolean) => send("PATCH /v2/sources/{sourceId}", { params, body: { paused } });
  const rotate = async (): Promise<void> => {
    const { url } = await send("POST /v2/sources/{sourceId}/rotate", { params });
    done(url, name);
  };
  return (
    <span className="actions end">
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
        <Button isSmall onClick={() => setIsForm(true)}>
          Edit
        </Button>
      )}
      <PauseButton
        name={`Source ${name || sourceId}`}
        isPaused={source.paused}
        pause={() => change(true)}
        resume={() => change(false)}
      />
      {isForm && <SourceForm source={source} close={() => setIsForm(false)} done={done} />}
    </span>
  );
}
