import type { Response } from "../../api/client.ts";
import { Id, Time, Url, useNow } from "../../parts/basics.tsx";
import { Shortened } from "../../parts/cells.tsx";
import { PageLink } from "../../parts/link.tsx";
import { State } from "../../parts/state.tsx";
import { Visible } from "../../parts/visible.tsx";
import { withClocks } from "../../parts/words.ts";
import { describeWait } from "../messages/describe.ts";
import { CancelMessage } from "../messages/help.tsx";
import type { Unfinished } from "../messages/states.ts";
import { shapeOf, stateWords } from "../messages/states.ts";

/** A message that holds a slot of a queue or a key, until it and its callbacks are finished. */
type Holder = Response<"GET /v2/queues/{name}/holders">["holders"][number];

type HoldersProps = {
  holders: readonly Holder[];
  /** The messages whose state is known. */
  known: readonly Unfinished[];
};

/** The holders of the slots of a queue or a key. */
export const Holders = ({ holders, known }: HoldersProps) => (
  <div className="places">
    {holders.map((holder) => (
      <HolderCard
        key={`${holder.messageId} ${holder.callbackId ?? ""}`}
        holder={holder}
        message={known.find(({ messageId }) => messageId === holder.messageId)}
      />
    ))}
  </div>
);

function HolderCard({ holder, message }: { holder: Holder; message: Unfinished | undefined }) {
  const { messageId, callbackId, text, url, createdAt } = holder;
  const now = useNow();
  const state = message?.state ?? "delivering";
  return (
    <article className={`place ${state === "retrying" ? "stuck" : ""}`}>
      <div className="head">
        <State state={shapeOf(state)} word={callbackId === undefined ? stateWords[state] : "Callback"} />
        {createdAt !== undefined && (
          <span className="n">
            <Time at={createdAt} />
          </span>
        )}
      </div>
      {url !== undefined && (
        <div className="l1">
          <Url url={url} />
        </div>
      )}
      <div className="l2">
        <PageLink to="/messages" search={{ open: callbackId ?? messageId }}>
          <Id id={callbackId ?? messageId} />
        </PageLink>
        {message?.label !== undefined && <Shortened text={message.label} />}
      </div>
      <div className="foot">
        <span className="sub">
          <Visible
            text={
              message?.error ??
              (message?.waitingOn && callbackId === undefined
                ? describeWait(message.waitingOn, now)
                : withClocks(text.replace(`message ${messageId} `, "").replaceAll(/^\(|\)$/g, ""), now))
            }
          />
        </span>
        <CancelMessage id={callbackId ?? messageId} />
      </div>
    </article>
  );
}
