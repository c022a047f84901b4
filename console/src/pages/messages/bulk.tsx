import { Bulk, OtherFilters } from "../../operations/jobs/bulk.tsx";
import { useFilters } from "../../parts/filters.tsx";

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
  const { values } = useFilters();
  if (others.some((name) => values[name] !== undefined))
    return (
      <OtherFilters names={others}>
        Messages cannot be cancelled by state, gate or run. Remove these filters first.
      </OtherFilters>
    );
  return (
    <Bulk
      action="messages.cancel"
      filter={Object.fromEntries(selecting.map((name) => [name, values[name]]))}
      consequence="They are not sent again. Requests in flight may still arrive."
      isDangerous
      close={close}
    />
  );
}
