import { Bulk } from "../../parts/bulk.tsx";
import { useFilters } from "../../parts/filters.tsx";
import { Button } from "../../parts/basics.tsx";

/** The filters by which messages can be cancelled. */
const selecting = [
  "label",
  "queueName",
  "flowControlKey",
  "url",
  "host",
  "topicName",
  "scheduleId",
  "messageIds",
  "callerIP",
];
const others = ["state", "gate", "workflowRunId"];

/** Cancels every message that the filters select. */
export function MessageBulk({ close }: { close(): void }) {
  const { values, set } = useFilters();
  if (others.some((name) => values[name] !== undefined))
    return (
      <section className="callout info" role="status">
        <span />
        <p>Messages cannot be cancelled by state, gate or run. Remove these filters first.</p>
        <div className="actions">
          <Button isSmall onClick={() => set(Object.fromEntries(others.map((name) => [name, undefined])))}>
            Remove them
          </Button>
        </div>
      </section>
    );
  return (
    <Bulk
      route="DELETE /v2/messages"
      query={Object.fromEntries(selecting.map((name) => [name, values[name]]))}
      verb="Cancel"
      noun="message"
      consequence="They are not sent again. Requests in flight may still arrive."
      isDangerous
      close={close}
    />
  );
}
