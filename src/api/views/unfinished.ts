import { z } from "zod";
import { gateKinds } from "../../engine/core/admission/gate.ts";
import { listedStates } from "../../engine/core/explain/listedState.ts";
import type { Millis } from "../../engine/core/values/basics.ts";
import type { UnfinishedEntry } from "../../engine/store/queries/unfinished.ts";
import { toJson } from "../fields/field.ts";
import { unfinishedFields } from "../fields/unfinished.ts";
import { listShownReasons } from "./waitReasons.ts";

/** Returns an unfinished message as lists show it. */
export function unfinishedJson(
  entry: UnfinishedEntry,
  { now, isOnHold }: { now: Millis; isOnHold: boolean },
): Record<string, unknown> {
  const [waitingOn] = listShownReasons(entry.waitState, now, isOnHold);
  return toJson(unfinishedFields, { ...entry, waitingOn });
}

/** The state in which a list shows a message. */
export const listedStateSchema = z.enum(listedStates, { error: `must be one of ${listedStates.join(", ")}` });
/** The kind of a gate. */
export const gateSchema = z.enum(gateKinds, { error: `must be one of ${gateKinds.join(", ")}` });
