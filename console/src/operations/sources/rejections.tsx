import { RotateCw } from "lucide-react";
import { useState } from "react";
import type { Response } from "../../api/client.ts";
import { send as sendRequest } from "../../api/client.ts";
import { useRead } from "../../api/queries.ts";
import { useMay } from "../../api/session.ts";
import { Button, Time } from "../../parts/basics.tsx";
import { Dialog } from "../../parts/dialog.tsx";
import { Loaded } from "../../parts/panel.tsx";
import { Headers, Payload } from "../../parts/payload.tsx";
import { Empty } from "../../parts/trouble.tsx";
import { Visible } from "../../parts/visible.tsx";
import { formatMany } from "../../parts/words.ts";
import { useDo } from "../../shell/toasts.tsx";
import type { Source } from "./sourceForm.tsx";

type Rejection = Response<"GET /v2/sources/{sourceId}/rejections">["rejections"][number];

type RejectionsProps = { source: Source; close(): void };

/** Sends the rejected calls that a source keeps. */
function SendRejected({ sourceId, count }: { sourceId: string; count: number }) {
  const [result, setResult] = useState<Response<"POST /v2/sources/{sourceId}/rejections/send"> | null>(null);
  const send = useDo();
  const act = async (): Promise<void> =>
    setResult(await sendRequest("POST /v2/sources/{sourceId}/rejections/send", { params: { sourceId } }));
  return (
    <div className="toolbar">
      <span role="status">
        {result === null
          ? `${formatMany(count, "call")} can be verified again and sent.`
          : `${result.sent} sent, ${result.repeated} repeated by the sender, ${result.refused.length} still rejected.`}
      </span>
      <span className="spring" />
      <Button icon={RotateCw} onClick={() => void send(act, "The rejected calls were verified again")}>
        Send rejected calls
      </Button>
    </div>
  );
}

/** The last calls that a source rejected, with the reasons. */
export function Rejections({ source: { sourceId, name, keptCalls }, close }: RejectionsProps) {
  const may = useMay();
  // The result stays when all calls were sent.
  const [hadCalls] = useState(keptCalls !== undefined);
  const found = useRead("GET /v2/sources/{sourceId}/rejections", { params: { sourceId } }, { every: null });
  return (
    <Dialog title={`Rejected calls of ${name || sourceId}`} close={close} isWide>
      <div className="dialog-body">
        {may.manage && hadCalls && <SendRejected sourceId={sourceId} count={keptCalls ?? 0} />}
        <Loaded query={found} what="The rejected calls" rows={3}>
          {({ rejections }) =>
            rejections.length === 0 ? (
              <Empty title="No rejected calls" />
            ) : (
              rejections.map((one) => <RejectedCall key={`${one.time} ${one.reason}`} of={one} />)
            )
          }
        </Loaded>
      </div>
    </Dialog>
  );
}

const RejectedCall = ({ of }: { of: Rejection }) => (
  <details>
    <summary>
      <b>
        <Visible text={of.reason} />
      </b>{" "}
      <span className="muted">
        {of.method} from {of.callerIP ?? "an unknown address"}, <Time at={of.time} />
      </span>
    </summary>
    <div className="dialog-body">
      <Payload text={of.body} base64={of.bodyBase64} label="Body of the call" isCut={of.truncated} />
      <Headers headers={of.header} />
    </div>
  </details>
);
