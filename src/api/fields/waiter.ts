import type { Waiter } from "../../engine/core/model/run.ts";
import { headerMap } from "../../engine/core/sending/callback.ts";
import type { HeaderList } from "../../engine/core/values/basics.ts";
import type { FieldsOf } from "./field.ts";
import { headers, integer, optional, text } from "./field.ts";

/** A step that waits for an event. `shown` and `shownAfterTimeout` are its headers without what is hidden. */
type ShownWaiter = Waiter & { shown: HeaderList; shownAfterTimeout: HeaderList };

/** The fields of a step that waits for an event. */
export const waiterFields: FieldsOf<ShownWaiter> = {
  url: text("The URL of the endpoint that is called with the event.", ({ url }) => url),
  headers: headers("Headers of the request that made the step wait: names to lists of values.", ({ shown }) =>
    headerMap(shown),
  ),
  deadline: optional(integer)("When the wait times out, in Unix seconds.", ({ dueAt }) =>
    dueAt === null ? null : Math.floor(dueAt / 1000),
  ),
  timeoutUrl: optional(text)(
    "The URL of the endpoint that is called after the timeout.",
    ({ timeoutUrl }) => timeoutUrl,
  ),
  timeoutHeaders: optional(headers)(
    "Headers for the call after the timeout: names to lists of values.",
    ({ shownAfterTimeout }) => headerMap(shownAfterTimeout),
  ),
  workflowRunId: optional(text)("The id of the run that waits.", ({ runId }) => runId),
  eventId: optional(text)("The id of the event.", ({ event }) => event),
};
