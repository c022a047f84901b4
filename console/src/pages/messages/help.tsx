import { Play, RotateCw, Send, X } from "lucide-react";
import { send, Trouble } from "../../api/client.ts";
import { useMay } from "../../api/session.ts";
import { ConfirmButton } from "../../parts/actions.tsx";
import { Button } from "../../parts/basics.tsx";
import { PageLink } from "../../parts/link.tsx";
import { useDo } from "../../shell/toasts.tsx";
import type { Wait } from "./states.ts";

type Help = { verb: string; act: () => Promise<unknown>; done: string; undo?: () => Promise<unknown> };

/** Returns the action that helps a message: resume the queue or the key. Null if there is none. */
function findHelp(wait: Wait | undefined): Help | null {
  const { queue, key } = wait ?? {};
  if (wait?.reason === "queue-paused" && queue !== undefined)
    return {
      verb: "Resume queue",
      act: () => send("POST /v2/queues/{name}/resume", { params: { name: queue } }),
      undo: () => send("POST /v2/queues/{name}/pause", { params: { name: queue } }),
      done: `Queue ${queue} is resumed`,
    };
  if (wait?.reason === "key-paused" && key !== undefined)
    return {
      verb: "Resume key",
      act: () => send("POST /v2/flowControl/{key}/resume", { params: { key } }),
      undo: () => send("POST /v2/flowControl/{key}/pause", { params: { key } }),
      done: `Key ${key} is resumed`,
    };
  return null;
}

/** The button that helps a waiting message, or a link to what holds it. */
export function HelpFirst({
  id,
  wait,
  isSmall = false,
}: {
  id: string;
  wait: Wait | undefined;
  isSmall?: boolean;
}) {
  const may = useMay();
  const act = useDo();
  const help = findHelp(wait);
  const ahead = wait?.behind?.[0]?.messageId;
  if (help && may.manage)
    return (
      <Button isSmall={isSmall} icon={Play} onClick={() => void act(help.act, help.done, help.undo)}>
        {help.verb}
      </Button>
    );
  if (ahead !== undefined && ahead !== id)
    return (
      <PageLink className="btn sm" to="/messages" search={{ open: ahead }}>
        Message ahead
      </PageLink>
    );
  if (wait?.queue !== undefined && wait.reason === "queue")
    return (
      <PageLink className="btn sm" to={`/queues/${encodeURIComponent(wait.queue)}`}>
        Open queue
      </PageLink>
    );
  return null;
}

/** A button that cancels a message. It does not ask, because the message can be published again. */
export function CancelMessage({ id }: { id: string }) {
  const may = useMay();
  const act = useDo();
  const cancel = () => send("DELETE /v2/messages/{messageId}", { params: { messageId: id } });
  return may.manage ? (
    <Button isSmall kind="danger" icon={X} onClick={() => void act(cancel, "The message is cancelled")}>
      Cancel
    </Button>
  ) : null;
}

type SendNowProps = { id: string; wait: Wait | undefined; isPlain?: boolean };

/** A button that sends a message at once, without waiting for its time. */
export function SendNow({ id, wait, isPlain = false }: SendNowProps) {
  const may = useMay();
  const act = useDo();
  const sendNow = () => send("POST /v2/messages/{messageId}/send-now", { params: { messageId: id } });
  const helps = wait?.reason === "retry" || wait?.reason === "not-due";
  return may.manage && helps ? (
    <Button
      isSmall
      {...(!isPlain && { kind: "primary" as const })}
      icon={Send}
      onClick={() => void act(sendNow, "The message is sent now")}
    >
      Send now
    </Button>
  ) : null;
}

type EndAttemptProps = { id: string; attempt: number; isHeld?: boolean };

/**
 * A button that ends an attempt in flight, after a question. The message is sent again. `isHeld`: its
 * receiver holds the attempt.
 */
export function EndAttempt({ id, attempt, isHeld = false }: EndAttemptProps) {
  const end = () =>
    send("POST /v2/messages/{messageId}/end-attempt", { params: { messageId: id }, query: { attempt } });
  return (
    <ConfirmButton
      title="End this attempt"
      verb="End attempt and retry"
      text="End and retry"
      icon={RotateCw}
      act={end}
    >
      <p>
        {isHeld
          ? "The receiver can no longer report this attempt, and the message "
          : "The connection closes, and the message "}
        is sent again after its retry delay. No retry is used up. The destination may have received the
        message.
      </p>
    </ConfirmButton>
  );
}

/** A button that retries a failed message, by the id of the message. */
export function RetryMessage({ id }: { id: string }) {
  const may = useMay();
  const act = useDo();
  const retry = async (): Promise<void> => {
    const done = await send("POST /v2/dlq/retry", { query: { messageId: id } });
    if ("responses" in done && done.responses.length === 0)
      throw new Trouble(404, "The message has no dead letter any more");
  };
  return may.manage ? (
    <Button isSmall icon={RotateCw} onClick={() => void act(retry, "The message is published again")}>
      Retry
    </Button>
  ) : null;
}

/** A link to the dead letter of a failed message, and the button that retries it. */
export function RetryFailed({ dlqId }: { dlqId: string }) {
  const may = useMay();
  const act = useDo();
  const retry = () => send("POST /v2/dlq/retry/{dlqId}", { params: { dlqId } });
  return (
    <>
      <PageLink className="btn sm" to="/dead-letters" search={{ open: dlqId }}>
        Dead letter
      </PageLink>
      {may.manage && (
        <Button
          isSmall
          kind="primary"
          icon={RotateCw}
          onClick={() => void act(retry, "The message is published again")}
        >
          Retry
        </Button>
      )}
    </>
  );
}
