import { Refusal } from "../../../src/engine/core/values/errors.ts";
import type { Delivery } from "../../../src/engine/core/model/delivery.ts";
import type { HeaderList } from "../../../src/engine/core/values/basics.ts";
import type { RunOnRequest, RunPart, StepHead } from "../../../src/engine/core/model/runPost.ts";
import type { CallType } from "../../../src/engine/core/model/run.ts";
import type { CommandCall, Store } from "../../../src/engine/store/store.ts";
import type { RandomSource } from "../randomSource.ts";
import type { Move, Program, Work } from "./programs.ts";
import { makeRunOutput, getProgram, replay, readHistory, stepTypes, workflowUrl } from "./programs.ts";
import {
  encodeStep,
  keepsSettings,
  makeCallInput,
  makeStartInput,
  makeStepInput,
  reusedRunIds,
  sdkHeaders,
} from "./runClients.ts";
import type { VirtualTime } from "../virtualTime.ts";

/** The response of an endpoint. Status null: the connection broke. */
export type EndpointAnswer = { status: number | null; headers: HeaderList; body: string };

/** How workflow endpoints interact with the rest of the simulation. */
type EndpointContext = {
  virtualTime: VirtualTime;
  /** Hosts of third parties. */
  hosts: readonly string[];
  /** Sends a request to any node that accepts requests. */
  ask<T>(request: (store: Store) => Promise<T>): Promise<T>;
  /** Called when an endpoint makes a request in a delivery of this message. */
  posts(call: CommandCall, messageId: string): void;
  /**
   * Called when a step is run for its result, in a call of its run. Reports whether the run already has the
   * result.
   */
  stepRan(call: Pick<RunPart, "run" | "stepKey">, stepId: number): boolean;
  reportViolation(why: string): void;
  cover(what: string): void;
  /** Reports whether a run may have steps that endpoints of other runs have posted. */
  mayHaveStepsOfOthers(run: string): boolean;
  /** Returns the id of a run that has ended, if there is one. */
  endedRun(account: string): string | null;
};

/** A store to which an endpoint posts. */
type Poster = Pick<Store, "execute">;

const ok: EndpointAnswer = { status: 200, headers: sdkHeaders, body: "{}" };
const failing: EndpointAnswer = {
  status: 500,
  headers: sdkHeaders,
  body: '{"error":"Error","message":"it broke"}',
};
const refusing: EndpointAnswer = {
  status: 489,
  headers: [["Upstash-Nonretryable-Error", "true"], ...sdkHeaders],
  body: "{}",
};
const owner = "endpoint";
type EndpointCall = {
  run: NonNullable<Delivery["message"]["run"]>;
  account: string;
  url: string;
  delivery: Delivery;
  /** The call, if it can continue after a step. */
  runOn?: RunOnRequest;
  /** The call has continued after its last step, so the next one may be posted in the short form. */
  takesShortForm?: boolean;
};

/**
 * Workflow endpoints that speak the protocol as the client does. During the phase with faults they also make
 * mistakes.
 */
export class Endpoints {
  /** The probability of mistakes, from 0 to 1. */
  failure = 0;
  readonly #context: EndpointContext;
  readonly #random: RandomSource;
  #children = 0;
  #calls = 0;
  /** The calls that have continued after a step, by message and attempt. */
  readonly #owners = new Map<string, string>();

  constructor(context: EndpointContext) {
    this.#context = context;
    this.#random = context.virtualTime.random;
  }

  /** Responds to one call. It may never end. */
  async respond(delivery: Delivery): Promise<EndpointAnswer> {
    const { virtualTime } = this.#context;
    const { run, account, url } = delivery.message;
    const often = (share: number): boolean => this.#random.isHit(this.failure * share);
    await this.#wait(
      often(0.05) ? this.#random.integerBetween(5_000, 70_000) : this.#random.integerBetween(1, 80),
    );
    if (!run) return failing;
    if (run.kind === "failure") return often(0.4) ? failing : ok;
    if (run.first !== undefined && often(0.05))
      return { ...ok, headers: run.first === "rest" ? sdkHeaders.slice(0, 1) : [] };
    if (often(0.12))
      return this.#random.of([
        failing,
        failing,
        { ...failing, status: null },
        { ...failing, status: 404 },
        refusing,
      ]);
    if (often(0.08)) await this.#postToEnded(account);
    if (often(0.2)) await this.#postAstray(account);
    const answer = await this.#work({ run, account, url, delivery }, often(0.1));
    if (often(0.1)) await this.#wait(this.#random.integerBetween(5_000, 70_000));
    virtualTime.note(`${url} answers ${answer.status} to ${delivery.message.id}`);
    // The endpoint has posted and then fails, or its response is lost.
    return often(0.1) ? this.#random.of([failing, { ...failing, status: null }]) : answer;
  }

  #wait(delay: number): Promise<void> {
    return this.#context.virtualTime.wait(delay, { owner, what: "endpoint" });
  }

  async #work(called: EndpointCall, twice: boolean): Promise<EndpointAnswer> {
    const program = getProgram(called.url);
    const text = new TextDecoder().decode(called.delivery.message.body);
    if (called.run.kind === "result")
      return this.#post(this.#inDelivery(called, this.#makeCallResultRequest(called, text)), twice);
    const history = (JSON.parse(text) as { body: string; callType: CallType }[]).map(
      ({ body, callType }) => ({
        callType,
        body: Buffer.from(body, "base64"),
      }),
    );
    const steps = readHistory(history);
    for (;;) {
      const move = replay(program, steps);
      const answer = await this.#move(called, { move, program, count: steps.length, twice });
      if (answer !== "continue") return answer;
      // The call has stored this step, and continues with the next one.
      if (move.kind === "work")
        steps.push({ ...makeStepHead(move.stepId, move.work, 1), out: makeRunOutput(move.stepId) });
      await this.#wait(this.#isOften(0.1) ? this.#random.integerBetween(5_000, 70_000) : 1);
      if (this.#isOften(0.15)) return this.#random.of([ok, failing, { ...failing, status: null }]);
    }
  }

  #isOften(share: number): boolean {
    return this.#random.isHit(this.failure * share);
  }

  /** Makes the next move of a call. Returns the response, or `continue` if the call runs on. */
  async #move(
    called: EndpointCall,
    { move, program, count, twice }: { move: Move; program: Program; count: number; twice: boolean },
  ): Promise<EndpointAnswer | "continue"> {
    this.#context.virtualTime.note(`${called.url} has ${count} steps of ${called.run.runId}: ${move.kind}`);
    const mayHaveStepsOfOthers = this.#context.mayHaveStepsOfOthers(called.run.run);
    if (move.kind === "wrong" && !mayHaveStepsOfOthers)
      this.#context.reportViolation(`${called.run.run}: ${move.why}`);
    // Such a run may never end by itself. Runs with reused ids are cancelled where they get these steps.
    const mayHang = mayHaveStepsOfOthers && !reusedRunIds.includes(called.run.runId);
    if (mayHang && (move.kind === "wrong" || move.kind === "nothing"))
      void this.#cancelLater(called.account, called.run.runId);
    if (move.kind === "work" && move.stepId === program.brokenStep && this.#random.isHit(0.7))
      return this.#random.of([failing, refusing]);
    if (move.kind === "work" && move.work.kind === "run" && move.concurrent === 1 && this.#random.isHit(0.7))
      return this.#postAndRunOn(called, move, twice);
    return this.#post(this.#inDelivery(called, this.#makeRequest(called, move)), twice);
  }

  /**
   * Posts a step and asks to continue in the same call. Later steps have the short form. If that stores
   * nothing, for whatever reason, the step is posted in the ordinary form.
   */
  async #postAndRunOn(
    called: EndpointCall,
    move: Extract<Move, { kind: "work" }>,
    twice: boolean,
  ): Promise<EndpointAnswer | "continue"> {
    const { message, attempt } = called.delivery;
    const runOn = called.runOn ?? { messageId: message.id, attempt, call: `c${++this.#calls}` };
    called.runOn = runOn;
    const request = this.#inDelivery(called, this.#makeRequest(called, move));
    const usesShortForm = called.takesShortForm === true || this.#isOften(0.1);
    let runsOn = usesShortForm && (await this.#postShort(called, { move, runOn, twice }));
    if (!runsOn) {
      const answer = await this.#post(async (store) => {
        const results = (await request(store)) as { runsOn?: true }[];
        runsOn ||= results[0]?.runsOn === true;
      }, twice);
      if (answer !== ok || !runsOn) return answer;
    } else this.#context.cover("ran on in the short form");
    called.takesShortForm = keepsSettings(called.run.runId) && this.#random.isHit(0.9);
    const name = `${runOn.messageId} ${attempt}`;
    const owner = this.#owners.get(name) ?? runOn.call;
    this.#owners.set(name, owner);
    if (owner !== runOn.call) this.#context.reportViolation(`two calls run on in attempt ${name}`);
    this.#context.cover("ran on");
    return "continue";
  }

  /** Posts a step in the short form. Reports whether it is stored, and the call may continue. */
  async #postShort(
    called: EndpointCall,
    of: { move: Extract<Move, { kind: "work" }>; runOn: RunOnRequest; twice: boolean },
  ): Promise<boolean> {
    const { account, run } = called;
    const { stepId, work } = of.move;
    const head = makeStepHead(stepId, work, 1);
    const body = encodeStep(head, makeRunOutput(stepId));
    let runsOn = false;
    const request = this.#inDelivery(called, async (store) => {
      const input = { account, runId: run.runId, head, body, runOn: of.runOn };
      const answer = await store.execute("runOnStep", input);
      runsOn ||= answer.runOn;
    });
    await this.#post(request, of.twice);
    return runsOn;
  }

  /** Notes the delivery in which a request is made. */
  #inDelivery({ delivery }: EndpointCall, request: (store: Poster) => Promise<unknown>) {
    const { posts } = this.#context;
    return (store: Poster): Promise<unknown> =>
      request({
        execute: (name, input, options) => {
          posts({ name, input }, delivery.message.id);
          return store.execute(name, input, options);
        },
      });
  }

  /** Posts once, or twice at the same time. A refused post means that the run has ended. */
  async #post(request: (store: Poster) => Promise<unknown>, twice: boolean): Promise<EndpointAnswer> {
    if (twice) this.#context.cover("posted twice");
    const all = Array.from({ length: twice ? 2 : 1 }, () => this.#context.ask(request));
    const late = this.#wait(20_000).then(() => {
      throw new Error("no response");
    });
    try {
      await Promise.race([Promise.all(all), late]);
      return ok;
    } catch (error) {
      // A retriable refusal says nothing about the run.
      if (
        !(error instanceof Refusal) ||
        ["unavailable", "outcome-unknown", "stopping", "storage-quota-exceeded"].includes(error.code)
      )
        return failing;
      this.#context.cover("refused post");
      return ok;
    } finally {
      for (const one of [...all, late]) one.catch(() => undefined);
    }
  }

  async #postToEnded(account: string): Promise<void> {
    const runId = this.#context.endedRun(account);
    if (runId === null) return;
    const head = { stepId: 1, stepName: "s1", stepType: "Run", concurrent: 1 };
    await this.#post(
      (store) =>
        store.execute("publish", {
          account,
          inputs: [makeStepInput(this.#random, { runId, url: workflowUrl(1), head, out: "late" })],
        }),
      false,
    );
  }

  /**
   * Posts something that no delivery has led to, for a run that may differ from its workflow. That run may
   * then stop halfway, so it is cancelled some time later.
   */
  async #postAstray(account: string): Promise<void> {
    const random = this.#random;
    const runId = random.of(reusedRunIds);
    const url = workflowUrl(1);
    const stepId = random.integerBetween(1, 5);
    const head = {
      ...{ stepId, stepName: `s${stepId}`, stepType: random.of(["Run", "Call"]) },
      concurrent: random.integerBetween(1, 3),
    };
    const plan = { ...head, stepId: 0, targetStep: stepId };
    const to = `https://${random.of(this.#context.hosts)}/third`;
    const input = random.of([
      makeStepInput(random, { runId, url, head, out: makeRunOutput(stepId) }),
      makeStepInput(random, { runId, url, head: plan }),
      makeCallInput(random, { runId, url, head: { ...head, stepType: "Call" }, to }),
    ]);
    const answer = await this.#post((store) => store.execute("publish", { account, inputs: [input] }), false);
    if (answer !== ok) return;
    this.#context.cover("posted astray");
    void this.#cancelLater(account, runId);
  }

  async #cancelLater(account: string, runId: string): Promise<void> {
    for (;;) {
      await this.#wait(this.#random.integerBetween(1_000, 90_000));
      const request = (store: Poster) => store.execute("cancelRuns", { account, runIds: [runId] });
      if ((await this.#post(request, false)) === ok) return;
    }
  }

  #makeRequest({ account, url, run, runOn }: EndpointCall, move: Move): (store: Poster) => Promise<unknown> {
    const { runId } = run;
    const random = this.#random;
    if (move.kind === "plan") {
      this.#context.cover("group");
      const inputs = move.group.map((work, index) => {
        const head = {
          ...makeStepHead(move.first + index, work, move.group.length),
          stepId: 0,
          targetStep: move.first + index,
        };
        return makeStepInput(random, {
          runId,
          url,
          head,
          ...(work.kind === "sleep" ? { delay: work.delay } : {}),
        });
      });
      return (store) => store.execute("publish", { account, inputs });
    }
    if (move.kind === "finish") {
      const body = new TextEncoder().encode(formatResult(move.outs));
      return (store) => store.execute("finishRun", { account, runId, body });
    }
    if (move.kind !== "work") return () => Promise.resolve();
    // The run already has the result, so that the post changes nothing and the run may never end by itself.
    if (this.#context.stepRan(run, move.stepId)) void this.#cancelLater(account, runId);
    return this.#makeWorkRequest({ account, url, run, runOn }, move);
  }

  #makeWorkRequest(
    {
      account,
      url,
      run,
      runOn,
    }: Omit<EndpointCall, "delivery" | "runOn"> & { runOn: RunOnRequest | undefined },
    { stepId, work, concurrent }: Extract<Move, { kind: "work" }>,
  ) {
    const { runId } = run;
    const random = this.#random;
    const head = makeStepHead(stepId, work, concurrent);
    const isAlone = concurrent === 1;
    const publish = (input: ReturnType<typeof makeStepInput>) => (store: Poster) =>
      store.execute("publish", { account, inputs: [input] });
    switch (work.kind) {
      case "run":
        return publish(makeStepInput(random, { runId, url, head, out: makeRunOutput(stepId), runOn }));
      case "sleep":
        return publish(
          makeStepInput(random, { runId, url, head, ...(isAlone ? { delay: work.delay } : {}) }),
        );
      case "call":
        return publish(
          makeCallInput(random, { runId, url, head, to: `https://${random.of(this.#context.hosts)}/third` }),
        );
      case "invoke": {
        const invoker = { runId, createdAt: run.createdAt, url, headers: sdkHeaders.slice(0, 1), step: head };
        return publish(
          makeStartInput(random, { runId: `child-${++this.#children}`, url: work.url, invoker }),
        );
      }
      case "wait": {
        const { event, wait, of: kind } = work;
        const waiter = {
          kind,
          event,
          wait,
          url,
          headers: [],
          given: [],
          timeout: `${wait / 1000}s`,
          step: head,
          timeoutUrl: url,
          timeoutHeaders: [],
          timeoutGiven: [],
        };
        return (store: Poster) => store.execute("wait", { account, runId, waiter });
      }
    }
  }

  /** Makes the response of a third party the result of its step. */
  #makeCallResultRequest(
    { account, url, run, delivery }: EndpointCall,
    text: string,
  ): (store: Poster) => Promise<unknown> {
    const { status, sourceMessageId } = JSON.parse(text) as { status: number; sourceMessageId: string };
    const stepId = Number(run.stepKey.slice(1));
    if (
      run.stepKey !== `f${stepId}` ||
      !delivery.message.headers.some(([name]) => name === "Upstash-Workflow-Callback")
    )
      this.#context.reportViolation(`${run.run}: a response comes as ${run.stepKey}`);
    const { work, concurrent } = findWork(getProgram(url), stepId);
    const out = JSON.stringify({ status, sourceMessageId });
    const input = makeStepInput(this.#random, {
      runId: run.runId,
      url,
      head: { ...makeStepHead(stepId, work, concurrent), stepType: stepTypes.call },
      out,
    });
    return (store) => store.execute("publish", { account, inputs: [input] });
  }
}

function findWork({ groups }: Program, stepId: number): { work: Work; concurrent: number } {
  const all = groups.flatMap((group) => group.map((work) => ({ work, concurrent: group.length })));
  return all[stepId - 1] ?? { work: { kind: "call" }, concurrent: 1 };
}

const makeStepHead = (stepId: number, work: Work, concurrent: number): StepHead => ({
  stepId,
  stepName: `s${stepId}`,
  stepType: stepTypes[work.kind],
  concurrent,
});

/** Returns the result of a workflow: the results of all its steps. */
export const formatResult = (outs: readonly (string | undefined)[]): string =>
  JSON.stringify(outs.map((out) => out ?? null));
