import type { UseQueryResult } from "@tanstack/react-query";
import { Trash2 } from "lucide-react";
import { useState } from "react";
import type { Response } from "../../api/client.ts";
import { send, Trouble } from "../../api/client.ts";
import { useRead } from "../../api/queries.ts";
import { useMay } from "../../api/session.ts";
import { ConfirmButton } from "../../parts/actions.tsx";
import { Button, Time, Url } from "../../parts/basics.tsx";
import { Shortened, TwoLines } from "../../parts/cells.tsx";
import { ListPanel } from "../../parts/list.tsx";
import { Loaded, Panel } from "../../parts/panel.tsx";
import { State } from "../../parts/state.tsx";
import type { Column } from "../../parts/table.tsx";
import { Empty, Failed, SkeletonRows } from "../../parts/trouble.tsx";
import { formatMany, formatSpan } from "../../parts/words.ts";
import type { AlertScope } from "./alertForm.tsx";
import { AlertForm } from "./alertForm.tsx";

type Alert = Response<"GET /v2/alerts/log">["alerts"][number];

/** The alerts of the account. */
export const Alerts = () => <AlertPanels scope="account" />;

const paths = {
  account: {
    get: "GET /v2/alerts",
    delete: "DELETE /v2/alerts",
    log: "GET /v2/alerts/log",
    title: "Alerts",
  },
  server: {
    get: "GET /v2/admin/alerts",
    delete: "DELETE /v2/admin/alerts",
    log: "GET /v2/admin/alerts/log",
    title: "Alerts about the server",
  },
} as const;

/** Where alerts are sent, and which were sent. `server`: those about the server, for the operator. */
export function AlertPanels({ scope }: { scope: AlertScope }) {
  const { get, log: logPath, title } = paths[scope];
  const found = useRead(get, {}, { every: null });
  const log = useRead(logPath);
  // The log comes after the setting, so that it does not move.
  if (found.isPending)
    return (
      <Panel title={title}>
        <div aria-busy="true">
          <SkeletonRows rows={3} />
        </div>
      </Panel>
    );
  return (
    <>
      <Setting scope={scope} found={found} />
      <Loaded query={log} what="The log of alerts" rows={2}>
        {({ alerts, dropped }) => (
          <ListPanel
            label={`Log of: ${title}`}
            title="Sent alerts"
            sub={dropped > 0 ? `${formatMany(dropped, "alert")} dropped` : "kept for 7 days"}
            columns={columns}
            rows={alerts}
            keyOf={({ alertId }) => alertId}
            empty={<Empty title="No alerts yet" />}
          />
        )}
      </Loaded>
    </>
  );
}

type SettingProps = { scope: AlertScope; found: UseQueryResult<SettingShown> };

function Setting({ scope, found }: SettingProps) {
  const { title } = paths[scope];
  const may = useMay();
  const [isOpen, setIsOpen] = useState(false);
  const mayChange = scope === "server" ? may.operate : may.manage;
  const isUnset = found.error instanceof Trouble && found.error.status === 404;
  const setting = isUnset ? undefined : found.data;
  return (
    <Panel
      title={title}
      sub="a request to your URL when something needs attention"
      end={
        mayChange && (
          <>
            {setting && <Remove scope={scope} />}
            <Button isSmall onClick={() => setIsOpen(true)}>
              {setting ? "Edit" : "Set a URL"}
            </Button>
          </>
        )
      }
    >
      {setting ? (
        <Details of={setting} />
      ) : isUnset ? (
        <Empty title="No alerts are sent">
          <p>Set the URL that receives them, for example that of your chat or pager.</p>
        </Empty>
      ) : (
        <Failed what={title} error={found.error} retry={() => void found.refetch()} />
      )}
      {isOpen && <AlertForm scope={scope} setting={setting} close={() => setIsOpen(false)} />}
    </Panel>
  );
}

type SettingShown = Response<"GET /v2/alerts"> | Response<"GET /v2/admin/alerts">;

const Details = ({ of }: { of: SettingShown }) => (
  <dl className="body kv">
    <dt>URL</dt>
    <dd>
      <Url url={of.url} />
    </dd>
    {"after" in of && (
      <>
        <dt>After</dt>
        <dd>{formatSpan(of.after * 1_000)}</dd>
        <dt>Signed with</dt>
        <dd>{of.hasSecret ? "their own secret" : "the signing keys of the account"}</dd>
      </>
    )}
    <dt>Events</dt>
    <dd>
      {of.events.map((event) => (
        <span key={event} className="chip">
          {event}
        </span>
      ))}
    </dd>
  </dl>
);

const Remove = ({ scope }: { scope: AlertScope }) => (
  <ConfirmButton
    title="Turn off alerts"
    verb="Remove URL"
    icon={Trash2}
    isAllowed
    act={() => send(paths[scope].delete)}
  >
    <p>The URL and the log of the alerts are deleted.</p>
  </ConfirmButton>
);

const states = {
  pending: { state: "pending", word: "Pending" },
  sent: { state: "delivered", word: "Sent" },
  failed: { state: "failed", word: "Failed" },
} as const;

const columns: readonly Column<Alert>[] = [
  { head: "State", className: "c-state w-state", cell: ({ state }) => <State {...states[state]} /> },
  {
    head: "Alert",
    className: "c-what",
    cell: ({ event, subject, text }) => (
      <TwoLines
        first={<Shortened text={text} />}
        second={
          <>
            <span className="chip">{event}</span> <Shortened text={subject} />
          </>
        }
      />
    ),
  },
  {
    head: "Response",
    className: "c-why w-why",
    cell: ({ responseStatus, error, attempts }) => (
      <TwoLines
        first={<Shortened text={error ?? (responseStatus === undefined ? "" : String(responseStatus))} />}
        second={formatMany(attempts, "attempt")}
      />
    ),
  },
  { head: "When", className: "num time c-when w-m", cell: ({ createdAt }) => <Time at={createdAt} /> },
];
