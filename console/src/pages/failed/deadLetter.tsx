import { PenLine, RotateCw, Trash2 } from "lucide-react";
import { useState } from "react";
import type { Response } from "../../api/client.ts";
import { send } from "../../api/client.ts";
import { useRead } from "../../api/queries.ts";
import { useMay } from "../../api/session.ts";
import { Button, Id, Time } from "../../parts/basics.tsx";
import { Codes } from "../../parts/codes.tsx";
import { PageLink } from "../../parts/link.tsx";
import { Headers, Payload } from "../../parts/payload.tsx";
import { Visible } from "../../parts/visible.tsx";
import { State } from "../../parts/state.tsx";
import { Failed, SkeletonRows } from "../../parts/trouble.tsx";
import { useDo } from "../../shell/toasts.tsx";
import { Replay } from "./replay.tsx";
import { Attempts } from "../messages/attempts.tsx";
import type { LogEntry } from "../messages/states.ts";
import { DrawerHead, Settings, useDrawer } from "../messages/drawer.tsx";

type DeadLetter = Response<"GET /v2/dlq/{dlqId}">;

/** One dead letter, next to its list: the last response, the request, and the ways to retry it. */
export function DeadLetterDrawer({ id, close }: { id: string; close(): void }) {
  const found = useRead("GET /v2/dlq/{dlqId}", { params: { dlqId: id } }, { every: null, keep: false });
  const drawer = useDrawer(close);
  const { data } = found;
  const log = useRead(
    "GET /v2/logs",
    { query: { messageId: data?.messageId, count: 100 } },
    { every: null, keep: false, enabled: data !== undefined },
  );
  const isWaiting = found.isPending || (data !== undefined && log.isPending);
  return (
    <aside className="drawer" aria-label={`Dead letter ${id}`} ref={drawer} tabIndex={-1}>
      <DrawerHead
        id={id}
        url={data?.url ?? ""}
        method={data?.method ?? ""}
        isWaiting={isWaiting}
        close={close}
      >
        <State state="failed" word="Failed" isPill />
        <span className="grow" />
        {data && <DeadLetterActions of={data} close={close} />}
      </DrawerHead>
      <div
        key={isWaiting ? "loading" : "ready"}
        className="scroll"
        tabIndex={0}
        role="region"
        aria-busy={isWaiting}
        aria-label="Details of the dead letter"
      >
        {isWaiting && <SkeletonRows rows={5} />}
        {found.error && (
          <Failed what="The dead letter" error={found.error} retry={() => void found.refetch()} />
        )}
        {data && !isWaiting && <Details of={data} entries={log.data?.events ?? []} />}
      </div>
    </aside>
  );
}

type DetailsProps = { of: DeadLetter; entries: readonly LogEntry[] };

const Details = ({ of, entries }: DetailsProps) => (
  <>
    <section>
      <h2>
        Last response
        <span className="end">{of.responseStatus ?? "none"}</span>
      </h2>
      {of.error !== null && of.error !== "" && (
        <p className="err">
          <Visible text={of.error} />
        </p>
      )}
      <Payload
        text={of.responseBody}
        base64={of.responseBodyBase64}
        label="Body of the response"
        isCut={of.truncated}
      />
    </section>
    {of.explanation !== undefined && (
      <section>
        <h2>Explanation</h2>
        <p>{of.explanation}</p>
      </section>
    )}
    {entries.length > 0 && <Attempts entries={entries} />}
    <section>
      <h2>
        Settings
        <span className="end">
          failed <Time at={readFailureTime(of.dlqId)} />
        </span>
      </h2>
      <Settings message={of} />
    </section>
    <section>
      <h2>Request</h2>
      <Payload text={of.body} base64={of.bodyBase64} label="Body of the message" />
    </section>
    <section>
      <h2>Headers</h2>
      <Headers headers={of.header} />
    </section>
    <section>
      <h2>See also</h2>
      <p>
        <PageLink
          className="link"
          to="/messages"
          search={{ view: "log", messageId: of.messageId, open: of.messageId }}
        >
          Message and its log
        </PageLink>
      </p>
      {of.replays?.map((messageId) => (
        <p key={messageId}>
          Published again as{" "}
          <PageLink className="link" to="/messages" search={{ open: messageId }}>
            <Id id={messageId} isWhole />
          </PageLink>
        </p>
      ))}
      <Codes of={{ method: "POST", path: `/v2/dlq/retry/${encodeURIComponent(of.dlqId)}` }} />
    </section>
  </>
);

/** Returns when a dead letter failed: its id begins with the time. */
const readFailureTime = (dlqId: string): number => Number(dlqId.slice(0, dlqId.indexOf("-")));

/** Buttons that publish a dead letter again, or delete it. */
function DeadLetterActions({ of, close }: { of: DeadLetter; close(): void }) {
  const { dlqId: id } = of;
  const may = useMay();
  const act = useDo();
  const [isReplaying, setIsReplaying] = useState(false);
  if (!may.manage) return null;
  const doing = (run: () => Promise<unknown>, done: string): void =>
    void act(run, done).then((isDone) => isDone && close());
  const remove = () => send("DELETE /v2/dlq/{dlqId}", { params: { dlqId: id } });
  const retry = () => send("POST /v2/dlq/retry/{dlqId}", { params: { dlqId: id } });
  return (
    <>
      <Button isSmall kind="danger" icon={Trash2} onClick={() => doing(remove, "The dead letter is deleted")}>
        Delete
      </Button>
      {may.read && (
        <Button isSmall icon={PenLine} onClick={() => setIsReplaying(true)}>
          Change and retry
        </Button>
      )}
      {isReplaying && <Replay of={of} close={() => setIsReplaying(false)} />}
      <Button
        isSmall
        kind="primary"
        icon={RotateCw}
        onClick={() => doing(retry, "The message is published again")}
      >
        Retry
      </Button>
    </>
  );
}
