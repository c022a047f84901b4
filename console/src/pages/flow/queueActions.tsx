import { useState } from "react";
import { send } from "../../api/client.ts";
import { PauseButton } from "../../parts/actions.tsx";
import { AsCode } from "../../parts/codes.tsx";
import { Field, FormDialog } from "../../parts/dialog.tsx";

type PauseProps = { queue: { name: string; paused: boolean }; isLarge?: boolean };

/** Pauses or resumes a queue. */
export const PauseQueue = ({ queue: { name, paused }, isLarge = false }: PauseProps) => (
  <PauseButton
    name={`Queue ${name}`}
    isPaused={paused}
    pause={() => send("POST /v2/queues/{name}/pause", { params: { name } })}
    resume={() => send("POST /v2/queues/{name}/resume", { params: { name } })}
    isLarge={isLarge}
  />
);

type FormProps = { close(): void; queue?: { name: string; parallelism: number } };

/** Creates a queue, or changes its parallelism. */
export function QueueForm({ close, queue }: FormProps) {
  const [name, setName] = useState(queue?.name ?? "");
  const [parallelism, setParallelism] = useState(String(queue?.parallelism ?? 1));
  const body = { queueName: name, parallelism: Number(parallelism) };
  return (
    <FormDialog
      title={queue ? `Parallelism of ${queue.name}` : "New queue"}
      verb={queue ? "Set parallelism" : "Create queue"}
      close={close}
      act={() => send("POST /v2/queues", { body })}
    >
      {!queue && (
        <Field name="Name" hint="Letters, digits, - _ and .">
          <input
            className="input"
            value={name}
            onChange={(event) => setName(event.target.value)}
            required
            autoFocus
          />
        </Field>
      )}
      <Field name="Parallelism" hint="The maximum number of messages that hold a slot. 1 keeps their order.">
        <input
          className="input"
          type="number"
          min={1}
          value={parallelism}
          onChange={(event) => setParallelism(event.target.value)}
          required
        />
      </Field>
      <AsCode of={{ method: "POST", path: "/v2/queues", json: body }} />
    </FormDialog>
  );
}
