import type { CallbackState } from "./deadLetter.ts";
import type { LogState } from "./logRow.ts";
import type { Millis } from "../values/basics.ts";
import type { RunState } from "./run.ts";

/** Selects messages. A message must match every given filter, with any one of its values. */
export type Filter = {
  messageIds?: readonly string[];
  dlqIds?: readonly string[];
  urls?: readonly string[];
  hosts?: readonly string[];
  paths?: readonly string[];
  labels?: readonly string[];
  callerIps?: readonly string[];
  states?: readonly LogState[];
  responseStatuses?: readonly number[];
  /** Ids of causes. Matches only dead letters. */
  causes?: readonly string[];
  topicNames?: readonly string[];
  queueNames?: readonly string[];
  scheduleIds?: readonly string[];
  flowControlKeys?: readonly string[];
  /**
   * For dead letters, `true` selects only those of workflow runs, and `false` excludes them. For unfinished
   * messages, `false` excludes messages of runs, and `true` is not used.
   */
  belongsToRun?: boolean;
  /** Matches only dead letters of runs. */
  runIds?: readonly string[];
  /** A run matches by its id or by the beginning of its id. */
  runIdStarts?: readonly string[];
  runUrls?: readonly string[];
  runsCreatedAt?: readonly Millis[];
  callbackStates?: readonly CallbackState[];
  /**
   * Limits the time of the listed item: of the creation, of the failure or of the log entry, depending on the
   * list. `from` and `to` are inclusive.
   */
  from?: Millis;
  to?: Millis;
};

/** Selects runs. A run must match every given filter, with any one of its values. */
export type RunFilter = {
  runIds?: readonly string[];
  /** `urls` match exactly. `urlStarts` match the beginning of a URL. */
  urls?: readonly string[];
  urlStarts?: readonly string[];
  hosts?: readonly string[];
  paths?: readonly string[];
  states?: readonly RunState[];
  labels?: readonly string[];
  flowControlKeys?: readonly string[];
  callerIps?: readonly string[];
  /** Matches exactly these runs, because several runs may have one id. */
  runs?: readonly { runId: string; createdAt: Millis }[];
  createdAt?: Millis;
  /** Limits the time of the run's creation. `from` and `to` are inclusive. */
  from?: Millis;
  to?: Millis;
};
