import { Pause, Play } from "lucide-react";
import type { SyntheticEvent } from "react";
import { useState } from "react";
import { send } from "../../api/client.ts";
import { useChange } from "../../api/queries.ts";
import { useMay } from "../../api/session.ts";
import { Button } from "../../parts/basics.tsx";
import { Codes } from "../../parts/codes.tsx";
import { Dialog, useAction } from "../../parts/dialog.tsx";
import { Refused } from "../../parts/trouble.tsx";
import { useDo } from "../../shell/toasts.tsx";

const pause = (name: string) => send("POST /v2/queues/{name}/pause", { params: { name } });
const resume = (name: string) => send("POST /v2/queues/{name}/resume", { params: { name } });

/** Pauses or resumes a queue. It can be undone, so nothing is asked. */
export function PauseQueue({
  queue: { name, paused },
  isLarge = false,
}: {
  queue: { name: string; paused: boolean };
  isLarge?: boolean;
}) {
  const may = useMay();
  const act = useDo();
  const change = useChange((run: () => Promise<unknown>) => run());
  if (!may.manage) return null;
  const [does, undoes] = paused ? [resume, pause] : [pause, resume];
  return (
    <Button
      isSmall={!isLarge}
      icon={paused ? Play : Pause}
      onClick={() =>
        void act(
          () => change.mutateAsync(() => does(name)),
          `Queue ${name} is ${paused ? "resumed" : "paused"}`,
          () => change.mutateAsync(() => undoes(name)),
        )
      }
    >
      {paused ? "Resume" : "Pause"}
    </Button>
  );
}

type FormProps = { isOpen: boolean; close(): void; queue?: { name: string; parallelism: number } };

/** Creates a queue, or changes its parallelism. */
export function QueueForm({ isOpen, close, queue }: FormProps) {
  const [name, setName] = useState(queue?.name ?? "");
  const [parallelism, setParallelism] = useState(String(queue?.parallelism ?? 1));
  const { error, isBusy, run } = useAction();
  const body = { queueName: name, parallelism: Number(parallelism) };
  const change = useChange(() => send("POST /v2/queues", { body }));
  const submit = (event: SyntheticEvent): void => {
    event.preventDefault();
    if (!isBusy) void run(() => change.mutateAsync(undefined)).then((isDone) => isDone && close());
  };
  return (
    <Dialog title={queue ? `Parallelism of ${queue.name}` : "New queue"} isOpen={isOpen} close={close}>
      <form onSubmit={submit}>
        <div className="dialog-body">
          {!queue && (
            <label className="field">
              <span className="label">Name</span>
              <input
                className="input"
                value={name}
                onChange={(event) => setName(event.target.value)}
                required
                autoFocus
              />
              <span className="hint">letters, digits, - _ and .</span>
            </label>
          )}
          <label className="field">
            <span className="label">Parallelism</span>
            <input
              className="input"
              type="number"
              min={1}
              value={parallelism}
              onChange={(event) => setParallelism(event.target.value)}
              required
            />
            <span className="hint">
              How many of its messages may be under delivery at once. 1 keeps their order.
            </span>
          </label>
          <Refused error={error} />
          <details>
            <summary>As code</summary>
            <Codes
              of={{
                method: "POST",
                path: "/v2/queues",
                headers: { "Content-Type": "application/json" },
                body: JSON.stringify(body),
              }}
            />
          </details>
        </div>
        <footer>
          <Button onClick={close}>Cancel</Button>
          <Button kind="primary" type="submit" disabled={isBusy}>
            {queue ? "Set parallelism" : "Create queue"}
          </Button>
        </footer>
      </form>
    </Dialog>
  );
}
