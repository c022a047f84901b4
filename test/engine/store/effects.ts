import { bulkActionNames } from "../../../src/engine/core/bulk/entries.ts";
import type { CommandName } from "../../../src/engine/store/catalog/commands.ts";
import type { Delivery } from "../../../src/engine/core/model/delivery.ts";
import { tableNames } from "../../../src/engine/store/catalog/order.ts";
import type { RandomCommand } from "./randomCommands.ts";

/** The effects that must have happened in some of the runs. */
export const wantedEffects = [
  "publish new",
  "publish deduplicated",
  "publish refused",
  "publish without account",
  "claim",
  "settle delivered",
  "settle retry",
  "settle failed",
  "settle cancelled",
  "settle late",
  "settle acknowledging",
  "reportAttempt delivered",
  "reportAttempt retry",
  "extendAttempt",
  "addPulledOrigin",
  "servePullers",
  "removePulledOrigin",
  "deliver pulled",
  "call off",
  "renew",
  "returnLeases",
  "reclaim",
  "cancel",
  "retryDeadLetters",
  "replayDeadLetter",
  ...bulkActionNames.map((action) => `bulk ${action}`),
  "createAccount",
  "upsertQueue",
  "deleteQueue",
  "pauseLimiter",
  "resumeLimiter",
  "pinFlowControl",
  "unpinFlowControl",
  "resetRate",
  "addEndpoints",
  "removeEndpoints",
  "setGroupHeaders",
  "deleteGroup",
  "createSchedule",
  "changeSchedule",
  "pauseSchedule",
  "resumeSchedule",
  "deleteSchedule",
  "publish each",
  "createSource",
  "changeSource",
  "deleteSource",
  "keepRejection",
  "noteAcceptance",
  "setAlerts",
  "setServerAlerts",
  "noteAlerts",
  "takeAlert",
  "noteAlertOutcome",
  "removeAlerts",
  "runSchedule",
  "sendNow",
  "fire",
  "createToken",
  "rewrite",
  "deliver step",
  "deliver call",
  "deliver result",
  "deliver failure",
  "wait",
  "notify",
  "keep event",
  "wait is over",
  "child ended",
  "finishRun",
  "cancelRuns",
  "resumeRun",
  "repeatFailureCallback",
  "run expired",
  "rotateKeys",
  "expire",
  ...tableNames.map((name) => `rows in ${name}`),
];

/** The effects that have happened in a run. */
export class Effects {
  readonly seen = new Set<string>();
  #runs: readonly string[] = [];

  /** Records the effects that show in the runs and in the bodies of their steps. */
  noteRuns(runs: readonly string[], bodies: readonly string[]): void {
    if (this.#runs.some((id) => !runs.includes(id))) this.seen.add("run expired");
    if (bodies.some((body) => body.includes('"waitTimeout":true'))) this.seen.add("wait is over");
    if (bodies.some((body) => body.includes("isCanceled"))) this.seen.add("child ended");
    this.#runs = runs;
  }

  /** Records the effects that show in the answer to a command and in its deliveries. */
  note({ name, input }: RandomCommand, answer: unknown, deliveries: readonly Delivery[]): void {
    if (deliveries.some(({ pullKey }) => pullKey !== undefined)) this.seen.add("deliver pulled");
    for (const { message } of deliveries) if (message.run) this.seen.add(`deliver ${message.run.kind}`);
    for (const effect of effectsOf(name, answer, deliveries))
      this.seen.add(name === "bulk" ? `bulk ${input.action}` : effect);
  }
}

function effectsOf(name: CommandName, answer: unknown, deliveries: readonly Delivery[]): string[] {
  if (Array.isArray(answer))
    return answer.map((one) => (name === "publish" ? `publish ${published(one)}` : name));
  if (typeof answer !== "object" || answer === null) return [];
  if ("refused" in answer)
    return name === "publish" && answer.refused === "unauthorized" ? ["publish without account"] : [];
  if ("notified" in answer && "stored" in answer)
    return answer.stored
      ? ["keep event"]
      : Array.isArray(answer.notified) && answer.notified.length > 0
        ? [name]
        : [];
  if ("became" in answer) return [`${name} ${String(answer.became)}`];
  if (name === "claim") {
    return deliveries.some(({ message }) => !message.startedAtOnce) ? [name] : [];
  }
  if (isSource(answer)) return [name];
  const tells = [
    "renewed",
    "returned",
    "reclaimed",
    "cancelled",
    "deleted",
    "done",
    "removed",
    "kept",
    "noted",
    "finished",
    "waits",
  ].filter((what) => what in answer);
  return tells.length === 0 || tells.some((what) => Number(Reflect.get(answer, what)) > 0) ? [name] : [];
}

const published = (one: object): string =>
  "each" in one
    ? "each"
    : "refused" in one
      ? "refused"
      : Reflect.get(one, "deduplicated")
        ? "deduplicated"
        : "new";

/** Reports whether an answer is a source. */
export const isSource = (answer: unknown): answer is { id: string } =>
  typeof answer === "object" && answer !== null && "secretHash" in answer;
