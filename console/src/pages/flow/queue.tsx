import { useNavigate, useParams } from "@tanstack/react-router";
import { ChevronRight, Trash2 } from "lucide-react";
import { useEffect, useRef, useState } from "react";
import type { Response } from "../../api/client.ts";
import { send } from "../../api/client.ts";
import { useRead } from "../../api/queries.ts";
import { useMay } from "../../api/session.ts";
import { Button, Icon, Id, Time, Url } from "../../parts/basics.tsx";
import { Shortened } from "../../parts/cells.tsx";
import { ConfirmButton } from "../../parts/actions.tsx";
import { PageLink } from "../../parts/link.tsx";
import { Loaded, Panel } from "../../parts/panel.tsx";
import { State } from "../../parts/state.tsx";
import { Table } from "../../parts/table.tsx";
import { Empty } from "../../parts/trouble.tsx";
import { formatClock, formatCount, formatMany, formatSpan } from "../../parts/words.ts";
import { Page } from "../../shell/shell.tsx";
import { describeWait } from "../messages/describe.ts";
import { CancelMessage } from "../messages/help.tsx";
import type { Unfinished } from "../messages/states.ts";
import { stateWords } from "../messages/states.ts";
import { PauseQueue, QueueForm } from "./queueActions.tsx";
import { Visible } from "../../parts/visible.tsx";

type Queue = Response<"GET /v2/queues/{name}">;

/** One queue: whether it makes progress, what holds its slots, and when it will be empty. */
export function QueuePage() {
  const { name = "" } = useParams({ strict: false });
  const queue = useRead("GET /v2/queues/{name}", { params: { name } });
  const line = useRead("GET /v2/messages", { query: { queueName: name, count: 100 } });
  return (
    <Page
      title={name}
      crumbs={
        <>
          <PageLink to="/queues">Queues</PageLink>
          <Icon of={ChevronRight} />
        </>
      }
    >
      <Loaded query={queue} what={`Queue ${name}`}>
        {(data) => (
          <Loaded query={line} what="The messages of the queue">
            {(found) => <QueueParts queue={data} line={found} />}
          </Loaded>
        )}
      </Loaded>
    </Page>
  );
}

function QueueParts({ queue, line }: { queue: Queue; line: Response<"GET /v2/messages"> }) {
  const { messages, total } = line;
  return (
    <>
      <QueueHead queue={queue} line={messages} />
      <QueueNumbers queue={queue} line={line} />
      <Slots messages={messages.filter(({ state }) => state === "delivering" || state === "retrying")} />
      <Line
        messages={messages.filter(({ state }) => state === "held" || state === "paused")}
        name={queue.name}
        total={total}
      />
    </>
  );
}

function QueueHead({ queue, line }: { queue: Queue; line: readonly Unfinished[] }) {
  const may = useMay();
  const [isForm, setIsForm] = useState(false);
  const navigate = useNavigate();
  const remove = async (): Promise<void> => {
    await send("DELETE /v2/queues/{name}", { params: { name: queue.name } });
    await navigate({ to: "/queues" });
  };
  const isStuck = !queue.paused && queue.lag > 0 && line.some(({ state }) => state === "retrying");
  const [state, word, about] = queue.paused
    ? (["paused", "Paused", "It sends no messages until you resume it."] as const)
    : isStuck
      ? (["held", "Blocked", "Messages that wait for a retry hold its slots."] as const)
      : queue.lag > 0
        ? (["delivering", "Active", "It sends its messages in order."] as const)
        : (["delivered", "Empty", "It has no messages."] as const);
  return (
    <section className="hero">
      <div className="line">
        <State state={state} word={word} isPill />
        <span className="muted">{about}</span>
        {may.manage && (
          <div className="actions">
            <ConfirmButton
              title={`Delete queue ${queue.name}`}
              verb="Delete queue"
              icon={Trash2}
              act={remove}
              typed={queue.name}
              isLarge
            >
              <p>
                Its settings are lost, and its {formatMany(queue.lag, "message")} are cancelled. Requests in
                flight may still arrive.
              </p>
            </ConfirmButton>
            <Button onClick={() => setIsForm(true)}>Set parallelism</Button>
            <PauseQueue queue={queue} isLarge />
          </div>
        )}
      </div>
      {isForm && <QueueForm close={() => setIsForm(false)} queue={queue} />}
    </section>
  );
}

function QueueNumbers({ queue, line }: { queue: Queue; line: Response<"GET /v2/messages"> | undefined }) {
  const rate = useRate(queue.lag);
  const busy = line?.messages.filter(({ state }) => state === "delivering" || state === "retrying").length;
  const drains = rate !== null && rate < 0 && queue.lag > 0 ? (queue.lag / -rate) * 60_000 : null;
  const now = Date.now();
  return (
    <section className="stats" aria-label="Numbers of the queue">
      <Stat
        name="Messages"
        value={formatCount(queue.lag)}
        about={queue.lag === 0 ? "none" : "waiting, or in a slot"}
      />
      <Stat
        name="Slots"
        value={busy === undefined ? "…" : formatCount(busy)}
        unit={`of ${formatCount(queue.parallelism)}`}
        about="in use"
      />
      <Stat
        name="Change"
        value={rate === null ? "…" : `${rate > 0 ? "+" : ""}${rate.toFixed(1)}`}
        unit="per minute"
        about="since this page was opened"
      />
      <Stat
        name="Empty at"
        value={queue.lag === 0 ? "now" : drains === null ? "unknown" : formatClock(now + drains, now)}
        about={
          drains === null
            ? queue.lag === 0
              ? "it has no messages"
              : "not shrinking"
            : `in ${formatSpan(drains)}, at this rate`
        }
      />
    </section>
  );
}

const Stat = ({
  name,
  value,
  unit,
  about,
}: {
  name: string;
  value: string;
  unit?: string;
  about: string;
}) => (
  <div className="stat">
    <span className="k">{name}</span>
    <span className="v">
      {value} {unit !== undefined && <small>{unit}</small>}
    </span>
    <span className="d">{about}</span>
  </div>
);

/** Returns how fast a number changes, per minute, since the page was opened. Null until it can be known. */
function useRate(value: number): number | null {
  const first = useRef<{ value: number; at: number } | null>(null);
  const [rate, setRate] = useState<number | null>(null);
  useEffect(() => {
    const now = Date.now();
    first.current ??= { value, at: now };
    const span = now - first.current.at;
    if (span > 8_000) setRate(((value - first.current.value) / span) * 60_000);
  }, [value]);
  return rate;
}

const Slots = ({ messages }: { messages: readonly Unfinished[] }) => (
  <Panel title="Slots in use" sub="held until the message and its callbacks are finished">
    {messages.length === 0 ? (
      <Empty title="No slots in use" />
    ) : (
      <div className="body">
        <div className="places">
          {messages.map((message) => (
            <article
              key={message.messageId}
              className={`place ${message.state === "retrying" ? "stuck" : ""}`}
            >
              <div className="head">
                <State state={message.state} word={stateWords[message.state]} />
                <span className="n">
                  <Time at={message.createdAt} />
                </span>
              </div>
              <div className="l1">
                <Url url={message.url} />
              </div>
              <div className="l2">
                <PageLink to="/messages" search={{ open: message.messageId }}>
                  <Id id={message.messageId} />
                </PageLink>
                {message.label !== undefined && <Shortened text={message.label} />}
              </div>
              <div className="foot">
                <span className="sub">
                  <Visible
                    text={
                      message.error ?? (message.waitingOn ? describeWait(message.waitingOn, Date.now()) : "")
                    }
                  />
                </span>
                <CancelMessage id={message.messageId} />
              </div>
            </article>
          ))}
        </div>
      </div>
    )}
  </Panel>
);

function Line({
  messages,
  name,
  total,
}: {
  messages: readonly Unfinished[];
  name: string;
  total: number | undefined;
}) {
  const navigate = useNavigate();
  return (
    <Panel
      title="Waiting"
      sub="in the order of arrival"
      end={
        <PageLink className="link" to="/messages" search={{ queueName: name }}>
          {total === undefined ? "Show all" : `Show all ${formatCount(total)}`}
        </PageLink>
      }
    >
      {messages.length === 0 ? (
        <Empty title="No waiting messages" />
      ) : (
        <Table
          label={`Messages that wait in queue ${name}`}
          rows={messages.slice(0, 20)}
          keyOf={({ messageId }) => messageId}
          open={({ messageId }) => void navigate({ to: "/messages", search: { open: messageId } })}
          columns={[
            { head: "Message", className: "w-id", cell: ({ messageId }) => <Id id={messageId} /> },
            { head: "To", cell: ({ url }) => <Url url={url} /> },
            { head: "Label", className: "p3 w-where", cell: ({ label }) => <Shortened text={label} /> },
            { head: "Accepted", className: "num time w-m", cell: ({ createdAt }) => <Time at={createdAt} /> },
          ]}
        />
      )}
    </Panel>
  );
}
