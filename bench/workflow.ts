/**
 * A minimal workflow endpoint that also triggers runs, in its own process. It uses no client library, so that
 * the cost of one is not measured: each call looks at the last step that it receives, and posts the next one.
 */
import { serveDriver } from "./benchProcess.ts";
import { stepResult } from "./stepTurn.ts";
import { answered, type EndpointCall, postHeaders, serveEndpoint } from "./workflowRuns.ts";

/**
 * Executes the next step of a run, or ends the run. If the turn runs on, it executes steps until the server
 * ends the call. Like `waypost/workflow`, it posts the first step of a call in the ordinary form, and later
 * steps in the short form.
 */
async function advance({ turn, number, runId, request, body }: EndpointCall): Promise<void> {
  const { sleep, steps, runsOn = false } = turn.of;
  const { "upstash-message-id": messageId, "upstash-retried": retried } = request.headers;
  const call = runsOn ? `${String(messageId)}.${String(retried)}.${++calls}` : null;
  const post = { url: turn.url, runId, call };
  const shortForm = `/v2/workflows/runs/${runId}/run-on/${String(call)}`;
  let takesShortForm = false;
  for (let step = parseLastStep(body) + 1; step <= steps; step++) {
    turn.stepBegins(number, step);
    takesShortForm &&= isRunOn(await turn.ask("POST", shortForm, stepBody(step)));
    if (!takesShortForm) {
      const item = step === 1 && sleep !== null ? sleepItem({ ...post, sleep }) : stepItem({ ...post, step });
      takesShortForm = isRunOn(await turn.ask("POST", "/v2/batch", JSON.stringify([item])));
    }
    turn.stepEnded();
    if (sleep !== null) turn.runEnded(number);
    if (!takesShortForm) return;
  }
  await turn.ask("DELETE", `/v2/workflows/runs/${runId}?cancel=false`, '"done"');
  turn.runEnded(number);
}

/** The calls that have run on. The number of one is its id. */
let calls = 0;

/** Reports whether a call may continue after a step. */
const isRunOn = (answer: string): boolean => answer.includes('"runOn":true');

/** Returns the number of the last step in a call, or 0 for the initial payload. */
function parseLastStep(body: string): number {
  const history: unknown = JSON.parse(body);
  const last: unknown = Array.isArray(history) && history.length > 1 ? history.at(-1) : null;
  if (typeof last !== "object" || last === null || !("body" in last)) return 0;
  const step: unknown = JSON.parse(Buffer.from(String(last.body), "base64").toString());
  return typeof step === "object" && step !== null && "stepId" in step ? Number(step.stepId) : 0;
}

type Post = { url: string; runId: string; call: string | null };

const stepItem = ({ url, runId, call, step }: Post & { step: number }): object => ({
  destination: url,
  headers: {
    ...postHeaders(url, runId, false),
    ...(call !== null && { "upstash-workflow-run-on": call }),
  },
  body: stepBody(step),
});

const stepBody = (step: number): string =>
  JSON.stringify({
    stepId: step,
    stepName: `step ${step}`,
    stepType: "Run",
    out: JSON.stringify(stepResult),
    concurrent: 1,
  });

const sleepItem = ({ url, runId, sleep }: Post & { sleep: string }): object => ({
  destination: url,
  headers: { ...postHeaders(url, runId, false), "upstash-delay": sleep },
  body: JSON.stringify({ stepId: 1, stepName: "nap", stepType: "SleepFor", sleepFor: sleep, concurrent: 1 }),
});

serveDriver(
  serveEndpoint(async (call, response) => {
    // It responds when its step is stored, as a real endpoint does.
    await advance(call);
    response.writeHead(200, answered).end("{}");
  }),
);
