import { parseGate } from "../../engine/core/admission/gate.ts";
import type { Limiter } from "../../engine/core/model/limiter.ts";
import type { FieldsOf } from "./field.ts";
import { count, flag, integer, longText } from "./field.ts";

/** The fields of a flow-control key, from its limiter with the current window. */
export const keyFields = {
  flowControlKey: longText("Name of the flow-control key.", ({ id }) => parseGate(id).name, "KEY"),
  waitListSize: count(
    "Number of messages in the waitlist. A delayed message counts as soon as it is due.",
    ({ waiting }) => waiting,
  ),
  waitlistSize: count("Another spelling of waitListSize.", ({ waiting }) => waiting, "WAITING"),
  parallelismMax: integer(
    "Maximum number of deliveries in flight at once. 0: no limit.",
    ({ parallelism }) => parallelism ?? 0,
  ),
  parallelismCount: count("Number of deliveries in flight.", ({ running }) => running),
  rateMax: integer(
    "Maximum number of deliveries that may start in each period. 0: no limit.",
    ({ rate }) => rate ?? 0,
  ),
  rateCount: integer(
    "Number of deliveries started in the current period. 0 without a rate limit.",
    ({ rate, windowUsed }) => (rate === null ? 0 : windowUsed),
  ),
  ratePeriod: integer(
    "Length of a period, in seconds, rounded up. 0 without a rate limit.",
    ({ rate, period }) => (rate === null ? 0 : Math.ceil(period / 1000)),
  ),
  ratePeriodStart: integer(
    "Start of the current period, in Unix seconds. 0 without a rate limit.",
    ({ rate, windowStart }) => (rate === null ? 0 : Math.floor(windowStart / 1000)),
  ),
  isPaused: flag(
    "Whether the key is paused, so that none of its messages is sent.",
    ({ paused }) => paused,
    "PAUSED",
  ),
  isPinnedParallelism: flag(
    "Whether the parallelism is pinned. Messages cannot change it then.",
    ({ pinned }) => pinned.parallelism,
  ),
  isPinnedRate: flag(
    "Whether rate and period are pinned. Messages cannot change them then.",
    ({ pinned }) => pinned.rate,
  ),
} satisfies FieldsOf<Limiter>;
