import type { Response } from "../../api/client.ts";
import { useRead } from "../../api/queries.ts";
import { Time } from "../../parts/basics.tsx";
import { Dialog } from "../../parts/dialog.tsx";
import { Loaded } from "../../parts/panel.tsx";
import { Headers, Payload } from "../../parts/payload.tsx";
import { Empty } from "../../parts/trouble.tsx";
import { Visible } from "../../parts/visible.tsx";
import type { Source } from "./sourceForm.tsx";

type Rejection = Response<"GET /v2/sources/{sourceId}/rejections">["rejections"][number];

/** The last calls that a source rejected, with the reasons. */
export function Rejections({ source: { sourceId, name }, close }: { source: Source; close(): void }) {
  const found = useRead("GET /v2/sources/{sourceId}/rejections", { params: { sourceId } }, { every: null });
  return (
    <Dialog title={`Rejected calls of ${name || sourceId}`} close={close} isWide>
      <div className="dialog-body">
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
