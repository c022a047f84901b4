import { RotateCw, Trash2 } from "lucide-react";
import { send } from "../../api/client.ts";
import { useChange, useRead } from "../../api/queries.ts";
import { useMay } from "../../api/session.ts";
import { Button } from "../../parts/basics.tsx";
import { useDo } from "../../shell/toasts.tsx";
import { PageLink } from "../../parts/link.tsx";
import { Headers, Payload, Visible } from "../../parts/payload.tsx";
import { State } from "../../parts/state.tsx";
import { Failed, SkeletonRows } from "../../parts/trouble.tsx";
import { Codes } from "../../parts/codes.tsx";
import { DrawerHead, useEscape } from "../messages/drawer.tsx";

/** One dead letter beside its list: the last answer, the body that was sent, and what mends it. */
export function DeadLetterDrawer({ id, close }: { id: string; close(): void }) {
  const found = useRead("GET /v2/dlq/{dlqId}", { params: { dlqId: id } }, { every: null, keep: false });
  useEscape(close);
  const { data } = found;
  return (
    <aside className="drawer" aria-label={`Dead letter ${id}`}>
      <DrawerHead
        id={id}
        url={data?.url ?? ""}
        method={data?.method ?? ""}
        isWaiting={found.isPending}
        close={close}
      >
        <State state="failed" word="Failed" isPill />
        <span className="grow" />
        <MendDeadLetter id={id} close={close} />
      </DrawerHead>
      <div
        key={found.isPending ? "loading" : "ready"}
        className="scroll"
        tabIndex={0}
        role="region"
        aria-busy={found.isPending}
        aria-label="Details of the dead letter"
      >
        {found.isPending && <SkeletonRows rows={5} />}
        {found.error && <Failed what="The dead letter" error={found.error} />}
        {data && (
          <>
            <section>
              <h2>
                The last answer
                <span className="end">{data.responseStatus ?? "none"}</span>
              </h2>
              {data.error !== null && data.error !== "" && (
                <p className="err">
                  <Visible text={data.error} />
                </p>
              )}
              <Payload
                text={data.responseBody}
                base64={data.responseBodyBase64}
                label="Body of the answer"
                isCut={data.truncated}
              />
            </section>
            <section>
              <h2>Body that was sent</h2>
              <Payload text={data.body} base64={data.bodyBase64} label="Body of the message" />
            </section>
            <section>
              <h2>Headers</h2>
              <Headers headers={data.header} />
            </section>
            <section>
              <h2>More</h2>
              <p>
                <PageLink className="link" to="/messages" search={{ view: "log", messageId: data.messageId }}>
                  The log of its message
                </PageLink>
              </p>
              <Codes of={{ method: "POST", path: `/v2/dlq/retry/${encodeURIComponent(id)}` }} />
            </section>
          </>
        )}
      </div>
    </aside>
  );
}

/** Buttons that mend one dead letter: publish it again, or delete it. */
function MendDeadLetter({ id, close }: { id: string; close(): void }) {
  const may = useMay();
  const act = useDo();
  const change = useChange((run: () => Promise<unknown>) => run());
  if (!may.manage) return null;
  const doing = (run: () => Promise<unknown>, done: string): void =>
    void act(async () => {
      await change.mutateAsync(run);
      close();
    }, done);
  return (
    <>
      <Button
        isSmall
        kind="danger"
        icon={Trash2}
        onClick={() =>
          doing(() => send("DELETE /v2/dlq/{dlqId}", { params: { dlqId: id } }), "The dead letter is deleted")
        }
      >
        Delete
      </Button>
      <Button
        isSmall
        kind="primary"
        icon={RotateCw}
        onClick={() =>
          doing(
            () => send("POST /v2/dlq/retry/{dlqId}", { params: { dlqId: id } }),
            "The message is published again",
          )
        }
      >
        Retry
      </Button>
    </>
  );
}
