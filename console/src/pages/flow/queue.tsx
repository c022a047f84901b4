import { useNavigate, useParams } from "@tanstack/react-router";
import { ChevronRight, Trash2 } from "lucide-react";
import { useState } from "react";
import type { Response } from "../../api/client.ts";
import { send } from "../../api/client.ts";
import { useRead } from "../../api/queries.ts";
import { useMay } from "../../api/session.ts";
import { Button, Icon, Time } from "../../parts/basics.tsx";
import { MessageCell } from "../../parts/cells.tsx";
import { ConfirmButton } from "../../parts/actions.tsx";
import { PageLink } from "../../parts/link.tsx";
import { Loaded, Panel } from "../../parts/panel.tsx";
import { State } from "../../parts/state.tsx";
import { Table } from "../../parts/table.tsx";
import { Empty } from "../../parts/trouble.tsx";
import { formatClock, formatCount, formatMany, formatSpan } from "../../parts/words.ts";
import { Page } from "../../shell/shell.tsx";
import type { Unfinished } from "../messages/states.ts";
import { Holders } from "./holders.tsx";
import { PauseQueue, QueueForm } from "./queueActions.tsx";

type Queue = Response<"GET /v2/queues/{name}">;
type Holding = Response<"GET /v2/queues/{name}/holders">;

/** One queue: whether it makes progress, what holds its slots, and when it will be empty. */
export function QueuePage() {
  const { name = "" } = useParams({ strict: false });
  const queue = useRead("GET /v2/queues/{name}", { params: { name } });
  const holding = useRead("GET /v2/queues/{name}/holders", { params: { name } });
  // The numbers read it again. It is awaited here, so that nothing moves when it comes.
  const forecast = useRead("GET /v2/queues/{name}/forecast", { params: { name } });
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
          <Loaded query={holding} what="The slots of the queue">
            {(held) => (
              <Loaded query={line} what="The messages of the queue">
                {(found) => !forecast.isPending && <QueueParts queue={data} line={found} holding={held} />}
              </Loaded>
            )}
          </Loaded>
        )}
      </Loaded>
    </Page>
  );
}

type QueueProps = { queue: Queue; line: Response<"GET /v2/messages">; holding: Holding };

function QueueParts({ queue, line, holding }: QueueProps) {
  const { messages, total } = line;
  return (
    <>
      <QueueHead queue={queue} line={messages} />
      <QueueNumbers queue={queue} used={holding.used} />
      <Slots holding={holding} known={messages} />
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

function QueueNumbers({ queue, used }: { queue: Queue; used: number }) {
  const forecast = useRead("GET /v2/queues/{name}/forecast", { params: { name: queue.name } }).data;
  const { emptyIn, faster } = forecast ?? {};
  const now = Date.now();
  const isEmpty = queue.lag === 0;
  return (
    <section className="stats" aria-label="Numbers of the queue">
      <Stat
        name="Messages"
        value={formatCount(queue.lag)}
        about={isEmpty ? "none" : "waiting, or in a slot"}
      />
      <Stat
        name="Slots"
        value={formatCount(used)}
        unit={`of ${formatCount(queue.parallelism)}`}
        about="in use"
      />
      <Stat
        name="Sent"
        value={forecast === undefined ? "…" : String(forecast.sentPerMinute ?? "many")}
        unit="per minute"
        about={
          forecast?.publishedPerMinute === undefined
            ? "in the last minutes"
            : `${forecast.publishedPerMinute} per minute published`
        }
      />
      <Stat
        name="Empty at"
        value={isEmpty ? "now" : emptyIn === undefined ? "unknown" : formatClock(now + emptyIn, now)}
        about={[
          isEmpty
            ? "it has no messages"
            : emptyIn === undefined
              ? forecast?.sentPerMinute === undefined
                ? "too busy to be counted"
                : "not shrinking"
              : `in ${formatSpan(emptyIn)}, at this rate`,
          ...(faster ? [`with parallelism ${faster.parallelism} in ${formatSpan(faster.emptyIn)}`] : []),
        ].join("; ")}
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

const Slots = ({ holding, known }: { holding: Holding; known: readonly Unfinished[] }) => (
  <Panel title="Slots in use" sub="held until the message and its callbacks are finished">
    {holding.holders.length === 0 ? (
      <Empty title="No slots in use" />
    ) : (
      <div className="body">
        <Holders holders={holding.holders} known={known} />
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
          className="two cards"
          label={`Messages that wait in queue ${name}`}
          rows={messages.slice(0, 20)}
          keyOf={({ messageId }) => messageId}
          open={({ messageId }) => void navigate({ to: "/messages", search: { open: messageId } })}
          columns={[
            {
              head: "Message",
              className: "c-what",
              cell: ({ messageId, method, url, label }) => (
                <MessageCell id={messageId} method={method} url={url} label={label} />
              ),
            },
            {
              head: "Accepted",
              className: "num time c-when w-m",
              cell: ({ createdAt }) => <Time at={createdAt} />,
            },
          ]}
        />
      )}
    </Panel>
  );
}
