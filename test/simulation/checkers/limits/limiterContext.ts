import type { Millis } from "../../../../src/engine/core/values/basics.ts";
import type { Tables } from "../../storage/changes.ts";
import type { MessageHistory } from "../messageHistory.ts";
import type { AssertHolds } from "../observedBatch.ts";

/** The messages of a simulation, by id. */
export type MessageHistories = ReadonlyMap<string, MessageHistory>;
/** The context of the checks of limiters. */
export type LimiterCheckContext = {
  messageHistories: MessageHistories;
  assertHolds: AssertHolds;
  tables: Tables;
  now: Millis;
  cover: (what: string) => void;
};
