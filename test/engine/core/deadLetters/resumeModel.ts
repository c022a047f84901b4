import type { MessageId, Millis } from "../../../../src/engine/core/values/basics.ts";
import type { StepHead } from "../../../../src/engine/core/model/runPost.ts";
import type { ResumePlan } from "../../../../src/engine/core/deadLetters/resumePlan.ts";
import { readRunPart, toStepId } from "../../../../src/engine/core/model/stepId.ts";
import type { CallType, Step } from "../../../../src/engine/core/model/run.ts";

/** The kind of a step. */
export type Kind = "run" | "sleep" | "wait" | "call" | "invoke";
/** A workflow: groups of steps, one after another. The steps of a group run in parallel. */
export type Program = readonly (readonly Kind[])[];

type Posted = { callType: CallType; head: StepHead | null; dueAt: Millis | null };
type SentStep = { step: Step; dueAt: Millis | null };

/**
 * A run of a workflow as the published client runs it. The test picks the order of all
 * messages.
 */
export class ModelRun {
  readonly steps: Step[];
  /** Messages to the endpoint without a response. */
  sent: SentStep[] = [];
  /** Requests to third parties, and steps that wait or have invoked a run. */
  calls: number[] = [];
  waiting: number[] = [];
  readonly ran: number[] = [];
  finished = false;
  readonly #program: Program;
  readonly #name: string;
  #count = 0;

  constructor(program: Program, name: string, plan: ResumePlan | null = null) {
    this.#program = program;
    this.#name = name;
    this.steps = [];
    for (const { step, resend } of plan ?? []) {
      const messageId = resend ? this.#newMessage() : step.messageId;
      const copy = {
        ...step,
        id: toStepId(name, readRunPart(step.id)),
        run: name,
        position: this.steps.length,
        messageId,
      };
      this.steps.push(copy);
      if (resend) this.sent.push({ step: copy, dueAt: resend.notBefore });
    }
    if (!plan) this.#append("i", { callType: "step", head: null, dueAt: null });
  }

  /**
   * Calls the endpoint with a message. `answered: false`: its response was lost, so the message is sent
   * again.
   */
  deliver(at: number, { answered }: { answered: boolean }): void {
    const sent = this.sent[at];
    if (!sent) return;
    if (answered) this.sent.splice(at, 1);
    const [, kind = "", number = ""] = /^([iprf])(\d*)$/.exec(readRunPart(sent.step.id)) ?? [];
    if (kind === "f") this.#post(`r${number}`, "step", null);
    else this.#continue(this.steps.slice(0, sent.step.position + 1));
  }

  /** Delivers the response of a third party, or ends a wait. */
  answer(number: number): void {
    if (this.calls.includes(number)) {
      this.calls = this.calls.filter((one) => one !== number);
      this.#post(`f${number}`, "fromCallback", null);
    } else if (this.waiting.includes(number)) {
      this.waiting = this.waiting.filter((one) => one !== number);
      this.#post(`r${number}`, "step", null);
    }
  }

  /** Returns the unfinished messages of a run that has failed with one of them. */
  unfinished(failing: number): Map<MessageId, Millis | null> {
    return new Map(this.sent.map(({ step, dueAt }, at) => [step.messageId, at === failing ? null : dueAt]));
  }

  hasResult(number: number): boolean {
    return this.steps.some(({ id }) => readRunPart(id) === `r${number}`);
  }

  #continue(seen: readonly Step[]): void {
    const slots = seen.map(({ id }) => readRunPart(id));
    let first = 1;
    for (const group of this.#program) {
      const of = slots.filter((slot) => /^[pr]/.test(slot) && Number(slot.slice(1)) >= first);
      const [only] = group;
      if (group.length === 1 && only !== undefined) {
        if (!slots.includes(`r${first}`)) return this.#execute(first, only);
      } else if (of.length === 0) {
        return group.forEach((kind, at) =>
          this.#post(`p${first + at}`, "step", kind === "sleep" ? 1_000 : null),
        );
      } else if (of.length < 2 * group.length) {
        const target = Number(/^p(\d+)$/.exec(slots.at(-1) ?? "")?.[1] ?? 0);
        const kind = group[target - first];
        // Otherwise the step has a result and others have none, so it is ignored.
        if (kind !== undefined) this.#execute(target, kind === "sleep" ? "run" : kind);
        return;
      }
      first += group.length;
    }
    this.finished = true;
  }

  #execute(number: number, kind: Kind): void {
    this.ran.push(number);
    if (kind === "call") this.#post(`c${number}`, "toCallback", null);
    else if (kind === "run" || kind === "sleep")
      this.#post(`r${number}`, "step", kind === "sleep" ? 1_000 : null);
    else if (!this.waiting.includes(number) && !this.hasResult(number)) this.waiting.push(number);
  }

  /** Adds a step unless it was posted before. */
  #post(slot: string, callType: CallType, dueAt: Millis | null): void {
    if (this.steps.some(({ id }) => readRunPart(id) === slot)) return;
    const number = Number(slot.slice(1));
    if (callType === "toCallback") this.calls.push(number);
    const isPlan = slot.startsWith("p");
    const head = { stepId: isPlan ? 0 : number, stepName: `step ${number}`, stepType: "Run", concurrent: 1 };
    this.#append(slot, { callType, head: isPlan ? { ...head, targetStep: number } : head, dueAt });
  }

  #append(slot: string, { callType, head, dueAt }: Posted): void {
    const step: Step = {
      account: "acme",
      id: toStepId(this.#name, slot),
      run: this.#name,
      position: this.steps.length,
      createdAt: 0,
      messageId: this.#newMessage(),
      callType,
      head,
      url: "https://app.example",
      headers: [],
      body: new Uint8Array(0),
    };
    this.steps.push(step);
    if (callType !== "toCallback") this.sent.push({ step, dueAt });
  }

  #newMessage(): MessageId {
    return `${this.#name}_${this.#count++}`;
  }
}
