import { Bulk, CannotSelect, toSelection } from "../../operations/jobs/bulk.tsx";
import { useFilters } from "../../parts/filters.tsx";

type MessageBulkProps = { chosen: readonly string[]; close(): void };

/** Cancels the chosen messages, or every message that the filters select. */
export function MessageBulk({ chosen, close }: MessageBulkProps) {
  const { values } = useFilters();
  if (chosen.length === 0 && values["workflowRunId"] !== undefined)
    return <CannotSelect>Messages of a run end with their run. Cancel the run instead.</CannotSelect>;
  return (
    <Bulk
      action="messages.cancel"
      filter={chosen.length > 0 ? { messageIds: chosen } : toSelection(values)}
      isChosen={chosen.length > 0}
      consequence="They are not sent again. Requests in flight may still arrive."
      isDangerous
      close={close}
    />
  );
}
