import { Panel } from "../../parts/panel.tsx";
import { Headers, Payload } from "../../parts/payload.tsx";
import type { Run } from "./shapes.ts";
import { listSteps } from "./shapes.ts";

/** The payload and the headers of the trigger of a run. */
export function RunPayload({ run }: { run: Run }) {
  const first = listSteps(run).find(({ stepType }) => stepType === "Initial");
  return (
    <>
      <Panel title="Payload">
        <div className="body">
          {first ? (
            <Payload
              text={first.out}
              base64={first.outBase64}
              label="Payload of the run"
              isCut={first.truncated}
            />
          ) : (
            <p className="muted">The payload is no longer stored.</p>
          )}
        </div>
      </Panel>
      {first?.headers && (
        <Panel title="Headers">
          <div className="body">
            <Headers headers={first.headers} />
          </div>
        </Panel>
      )}
    </>
  );
}
