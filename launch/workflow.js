// See workflow.d.ts. It uses only public members of the context, and imports nothing, so it runs in every
// runtime. The client posts the result of a step, and then ends the call by an error with the stored step. If
// the server has answered that the call may continue, the wrapper returns the result instead. The client has
// counted the step, so its next step has the next number, and nothing is executed again.

const header = "Upstash-Workflow-Run-On";
const features = "Upstash-Feature-Set";
const defaultMaxDuration = 5;

/** Steps other than `run`. */
const otherSteps = [
  "sleep",
  "sleepUntil",
  "call",
  "waitForEvent",
  "notify",
  "invoke",
  "createWebhook",
  "waitForWebhook",
];

/** See workflow.d.ts. */
export function runOn(route, { maxDuration = defaultMaxDuration, middlewares = [] } = {}) {
  if (typeof maxDuration !== "number" || !(maxDuration >= 0))
    throw new Error(`maxDuration: ${maxDuration} is not a number of seconds`);
  // The adapter for Astro passes a second argument.
  return (context, ...more) => {
    prepare(context, { until: performance.now() + maxDuration * 1_000, middlewares });
    return route(context, ...more);
  };
}

/** Replaces methods of the context of one call. */
function prepare(context, { until, middlewares }) {
  const messageId = context.headers.get("upstash-message-id");
  const attempt = context.headers.get("upstash-retried");
  if (messageId === null || attempt === null) return;
  const call = {
    ...{ token: `${messageId}.${attempt}.${createCallId()}`, messageId, runId: context.workflowRunId },
    ...{ hasExecuted: false, mayContinue: false, takesShortForm: false },
  };
  define(context, "qstashClient", askingClient(context.qstashClient, call, until));
  const { run } = context;
  let lastStep = null;
  define(context, "run", (name, work) => {
    const execute = () => {
      call.hasExecuted = true;
      return work();
    };
    const finish = async (error) => {
      const { mayContinue } = call;
      call.mayContinue = false;
      const step = error?.name === "WorkflowAbort" ? error.stepInfo : undefined;
      if (!mayContinue || step?.stepType !== "Run") throw error;
      if (lastStep !== null && step.stepId !== lastStep + 1) throw error;
      lastStep = step.stepId;
      const result = parseResult(step.out);
      for (const middleware of middlewares) await tell(middleware, { context, stepName: name, result });
      return result;
    };
    return quiet(run.call(context, name, execute).then(undefined, finish));
  });
  // Each kind of step takes one more turn of the promise queue, so that steps of parallel branches stay in
  // the order in which the client would see them.
  for (const name of otherSteps) {
    const method = context[name];
    if (typeof method === "function")
      define(context, name, (...given) => quiet(method.apply(context, given).then((value) => value)));
  }
}

/** Returns a client that asks to continue with each post of a step that was executed in this call. */
function askingClient(client, call, until) {
  const batch = async (items) => {
    const asks = call.hasExecuted && items.length === 1 && performance.now() < until;
    call.hasExecuted = false;
    if (!asks) return client.batch(items);
    const [item] = items;
    if (call.takesShortForm) {
      call.mayContinue = await postShort(client, call, item);
      if (call.mayContinue) return [{ messageId: call.messageId }];
      call.takesShortForm = false;
    }
    const answers = await client.batch([{ ...item, headers: { ...item.headers, [header]: call.token } }]);
    call.mayContinue = answers[0]?.runOn === true;
    // Older clients give settings with each step, which the short form does not have.
    call.takesShortForm = call.mayContinue && String(item.headers?.[features]).includes("WF_TriggerOnConfig");
    return answers;
  };
  return Object.create(client, { batch: { value: batch } });
}

/**
 * Posts the second or a later step of a call, with less work for the server. Whatever is wrong, the step is
 * then posted in the ordinary way, so a step that was stored is only posted again.
 */
async function postShort(client, { runId, token }, { body }) {
  try {
    const path = ["v2", "workflows", "runs", encodeURIComponent(runId), "run-on", token];
    const headers = { "Content-Type": "application/json" };
    return (await client.http.request({ method: "POST", path, headers, body })).runOn === true;
  } catch {
    return false;
  }
}

/** A step that nobody awaits may end the call, which is not an error. */
function quiet(step) {
  step.catch(() => undefined);
  return step;
}

const define = (target, name, value) =>
  void Object.defineProperty(target, name, { value, configurable: true, writable: true });

/** Returns the result as a later call would read it: the step holds its JSON. */
function parseResult(out) {
  if (typeof out !== "string") return out;
  try {
    return JSON.parse(out);
  } catch {
    return out;
  }
}

async function tell(middleware, event) {
  try {
    await middleware.ensureInit();
    await middleware.getCallback("afterExecution")?.(event);
  } catch (error) {
    console.error("a middleware failed in afterExecution", error);
  }
}

/** Returns an id that no other call has, because two requests of one attempt must not both continue. */
const createCallId = () =>
  Array.from(crypto.getRandomValues(new Uint8Array(16)), (byte) => (byte % 32).toString(32)).join("");
