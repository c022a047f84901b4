import type { Response } from "../../api/client.ts";
import { useRead } from "../../api/queries.ts";
import { useSession } from "../../api/session.ts";
import { Loaded, Panel } from "../../parts/panel.tsx";
import { formatBytes, formatCount, formatSpan, noCountFrom, noLimitFrom } from "../../parts/words.ts";

type Account = Response<"GET /v2/svc/user/{id}">;

const count = (value: number): string => (value >= noCountFrom ? "no limit" : formatCount(value));
const bytes = (value: number): string => (value >= noLimitFrom ? "no limit" : formatBytes(value));
const seconds = (value: number): string => formatSpan(value * 1000);

const groups: readonly { title: string; rows: readonly [name: string, show: (of: Account) => string][] }[] = [
  {
    title: "Messages",
    rows: [
      ["Body", (of) => bytes(of.max_message_size)],
      ["Delay", (of) => seconds(of.max_delay)],
      ["Retries", (of) => count(of.max_retries)],
      ["Timeout", (of) => seconds(of.timeout)],
      ["Timeout by default", (of) => seconds(of.default_timeout)],
    ],
  },
  {
    title: "Rates",
    rows: [
      ["Requests per second", (of) => count(of.max_requests_per_second)],
      ["Requests per day", (of) => count(of.max_requests_per_day)],
      ["Requests per day, then errors", (of) => count(of.max_requests_per_day_hard)],
      ["Deliveries in flight", (of) => count(of.max_global_parallelism)],
      ["Deliveries in flight to one endpoint", (of) => count(of.max_parallelism)],
    ],
  },
  {
    title: "Numbers",
    rows: [
      ["Queues", (of) => count(of.max_queues)],
      ["Schedules", (of) => count(of.max_schedules)],
      ["URL groups", (of) => count(of.max_topics)],
      ["Endpoints of a URL group", (of) => count(of.max_endpoints_per_topic)],
    ],
  },
  {
    title: "History",
    rows: [
      ["Dead letters", (of) => count(of.max_dlq_size)],
      ["Log entries", (of) => count(of.max_events_size)],
      ["Dead letters are kept for", (of) => formatSpan(of.max_dlq_retention_time_milis)],
      ["Storage", (of) => bytes(of.max_storage_bytes)],
      ["Stored now", (of) => formatBytes(of.storage_bytes)],
    ],
  },
];

/** The limits of the account. */
export function Limits() {
  const { session } = useSession();
  const params = { id: session.account?.id ?? "" };
  const found = useRead("GET /v2/svc/user/{id}", { params }, { every: null });
  return (
    <Loaded query={found} what="The limits">
      {(account) => (
        <Panel title="Limits" sub={account.reserved_type !== "" && `plan ${account.reserved_type}`}>
          <div className="body limits">
            {groups.map(({ title, rows }) => (
              <section key={title} aria-label={title}>
                <h3>{title}</h3>
                <dl className="kv">
                  {rows.map(([name, show]) => (
                    <div key={name} className="pair">
                      <dt>{name}</dt>
                      <dd>{show(account)}</dd>
                    </div>
                  ))}
                </dl>
              </section>
            ))}
          </div>
        </Panel>
      )}
    </Loaded>
  );
}
