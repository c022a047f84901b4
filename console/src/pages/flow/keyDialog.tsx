import { RotateCcw } from "lucide-react";
import { useState } from "react";
import type { Response } from "../../api/client.ts";
import { send, toPath } from "../../api/client.ts";
import { useMay } from "../../api/session.ts";
import { Button } from "../../parts/basics.tsx";
import { AsCode } from "../../parts/codes.tsx";
import { Field, FormDialog } from "../../parts/dialog.tsx";
import { PageLink } from "../../parts/link.tsx";
import { formatMany, formatSpan } from "../../parts/words.ts";
import { useDo } from "../../shell/toasts.tsx";

type Key = Response<"GET /v2/flowControl">[number];

/** One key: pins its limits, so that messages do not change them, and resets its rate. */
export function KeyDialog({ of, close }: { of: Key; close(): void }) {
  const { flowControlKey: key, waitlistSize, ratePeriod } = of;
  const may = useMay();
  const [parallelism, setParallelism] = useState(toText(of.parallelismMax));
  const [rate, setRate] = useState(toText(of.rateMax));
  const period = ratePeriod > 0 ? ratePeriod : 1;
  const sent = {
    params: { key },
    query: {
      ...(parallelism !== "" && { parallelism }),
      ...(rate !== "" && { rate, period: `${period}s` }),
    },
  };
  const isPinned = of.isPinnedParallelism || of.isPinnedRate;
  return (
    <FormDialog
      title={`Key ${key}`}
      verb={may.manage ? "Pin limits" : null}
      close={close}
      act={() => send("POST /v2/flowControl/{key}/pin", sent)}
      isBlocked={parallelism === "" && rate === ""}
      extra={may.manage && <KeyActions of={of} close={close} />}
    >
      <p>
        {formatMany(waitlistSize, "message waits", "messages wait")} for this key.{" "}
        <PageLink className="link" to="/messages" search={{ flowControlKey: key }}>
          Show
        </PageLink>
      </p>
      <Field name="Parallelism">
        <LimitInput value={parallelism} set={setParallelism} />
      </Field>
      <Field
        name={`Rate per ${formatSpan(period * 1000)}`}
        hint={
          isPinned
            ? "The limits are pinned: messages do not change them."
            : "Each message with this key sets its limits, unless they are pinned."
        }
      >
        <LimitInput value={rate} set={setRate} />
      </Field>
      <AsCode of={{ method: "POST", path: toPath("POST /v2/flowControl/{key}/pin", sent) }} />
    </FormDialog>
  );
}

const toText = (limit: number): string => (limit > 0 ? String(limit) : "");

type LimitInputProps = { value: string; set(value: string): void };

/** A limit. Its field gives it further attributes. */
function LimitInput({ value, set, ...rest }: LimitInputProps) {
  const may = useMay();
  return (
    <input
      {...rest}
      className="input"
      type="number"
      min={1}
      value={value}
      onChange={(event) => set(event.target.value)}
      placeholder="no limit"
      readOnly={!may.manage}
    />
  );
}

/** Resets the rate of a key, or unpins its limits. */
function KeyActions({ of, close }: { of: Key; close(): void }) {
  const act = useDo();
  const params = { key: of.flowControlKey };
  const doing = (run: () => Promise<unknown>, done: string): void =>
    void act(run, done).then((isDone) => isDone && close());
  const reset = () => send("POST /v2/flowControl/{key}/resetRate", { params });
  const query = { parallelism: of.isPinnedParallelism, rate: of.isPinnedRate };
  const unpin = () => send("POST /v2/flowControl/{key}/unpin", { params, query });
  return (
    <>
      <Button kind="ghost" icon={RotateCcw} onClick={() => doing(reset, "The rate is reset")}>
        Reset rate
      </Button>
      {(of.isPinnedParallelism || of.isPinnedRate) && (
        <Button onClick={() => doing(unpin, "The limits are unpinned")}>Unpin</Button>
      )}
    </>
  );
}
