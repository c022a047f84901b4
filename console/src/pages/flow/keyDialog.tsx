import { RotateCcw } from "lucide-react";
import { useState } from "react";
import type { Response } from "../../api/client.ts";
import { send, toPath } from "../../api/client.ts";
import { useMay } from "../../api/session.ts";
import { useRead } from "../../api/queries.ts";
import { Button, Id, Time, Url } from "../../parts/basics.tsx";
import { AsCode } from "../../parts/codes.tsx";
import { Field, FormDialog } from "../../parts/dialog.tsx";
import { PageLink } from "../../parts/link.tsx";
import { Loaded } from "../../parts/panel.tsx";
import { formatCount, formatMany, formatSpan } from "../../parts/words.ts";
import { useDo } from "../../shell/toasts.tsx";
import type { Unfinished } from "../messages/states.ts";
import { Holders } from "./holders.tsx";

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
      below={<KeyMessages name={key} />}
      isWide
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
            ? "The limits are pinned: messages cannot change them. Unpin them to allow it."
            : "Each message with this key sets its limits, unless they are pinned."
        }
      >
        <LimitInput value={rate} set={setRate} />
      </Field>
      <AsCode of={{ method: "POST", path: toPath("POST /v2/flowControl/{key}/pin", sent) }} />
    </FormDialog>
  );
}

/** The messages that hold the slots of a key, and the first ones that wait. */
function KeyMessages({ name }: { name: string }) {
  const holding = useRead("GET /v2/flowControl/{key}/holders", {
    params: { key: name },
    query: { count: 20 },
  });
  const query = { flowControlKey: name, count: 20 };
  const line = useRead("GET /v2/messages", { query });
  return (
    <Loaded query={holding} what="The slots of the key" rows={1}>
      {({ holders, used, limit }) => (
        <Loaded query={line} what="The messages of the key" rows={1}>
          {({ messages }) => (
            <>
              <h3>
                Slots in use: {formatCount(used)}
                {limit !== undefined && ` of ${formatCount(limit)}`}
              </h3>
              {holders.length > 0 && <Holders holders={holders} known={messages} />}
              <Waiting messages={messages} />
            </>
          )}
        </Loaded>
      )}
    </Loaded>
  );
}

/** The number of waiting messages that are shown. The link above leads to all. */
const shownWaiting = 5;

/** The messages that wait longest. */
function Waiting({ messages }: { messages: readonly Unfinished[] }) {
  const waiting = messages.filter(({ state }) => state === "held" || state === "paused");
  if (waiting.length === 0) return null;
  return (
    <section aria-label="Waiting messages">
      <h3>Waiting, in the order of arrival</h3>
      <ol className="stack">
        {waiting.slice(0, shownWaiting).map(({ messageId, url, createdAt }) => (
          <li key={messageId} className="l1">
            <PageLink className="link" to="/messages" search={{ open: messageId }}>
              <Id id={messageId} />
            </PageLink>
            <Url url={url} /> <Time at={createdAt} />
          </li>
        ))}
      </ol>
    </section>
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
