import { randomUUID } from "node:crypto";
import type { WorkflowUser, RecordedUrl } from "../workflowTestServer.ts";
import { python, pythonJson } from "./dialects.ts";
import { exchange } from "./exchange.ts";

// An endpoint that speaks to the server like a workflow served in Python. It executes steps one after another
// and posts each of them as a batch of one item. The history answers all other calls of the endpoint.

type Json = string | number | boolean | null | Json[] | { [name: string]: Json };

/** A step as Python posts it. Every member is present, and null if it has no value. */
type Step = {
  stepId: number;
  stepName: string;
  stepType: "Run" | "SleepFor" | "SleepUntil" | "Call";
  out: Json;
  sleepFor: number | string | null;
  sleepUntil: number | null;
  callUrl: string | null;
  callMethod: string | null;
  callBody: Json;
  callHeaders: { [name: string]: string } | null;
};

type CallOptions = {
  url: string;
  method?: string;
  body?: Json;
  headers?: Record<string, string>;
  retries?: number;
};
/** The response of a third party, as `context.call` returns it. */
export type CallResult = { status: number; body: Json; header: Record<string, string[]> };

/** The context that a workflow in Python uses. */
export type PythonContext = {
  requestPayload: Json;
  headers: Readonly<Record<string, string>>;
  workflowRunId: string;
  run<T extends Json>(name: string, execute: () => T): Promise<T>;
  sleep(name: string, seconds: number | string): Promise<void>;
  sleepUntil(name: string, unixSeconds: number): Promise<void>;
  call(name: string, options: CallOptions): Promise<CallResult>;
};

/** The arguments of a failure function in Python. */
export type PythonFailure = {
  status: number;
  message: string;
  payload: Json;
  workflowRunId: string;
  headers: Record<string, string[]>;
};

type Options = { features: string; retries?: number; failureFunction?: (failure: PythonFailure) => void };
type Route = (context: PythonContext) => Promise<void>;

/** Thrown at the step that was posted. Everything after it belongs to a later call of the endpoint. */
class Posted extends Error {}

const noStep = {
  out: null,
  sleepFor: null,
  sleepUntil: null,
  callUrl: null,
  callMethod: null,
  callBody: null,
  callHeaders: null,
};

/** Serves a workflow like the Python package. Every request is verified with the keys of the account. */
export function servePython(user: WorkflowUser, route: Route, options: Options): RecordedUrl {
  const place: RecordedUrl = user.answer(async (request) => {
    const body = await request.text();
    const url = request.url.split("?")[0] ?? "";
    await user.receiver.verify({ signature: request.headers.get("upstash-signature") ?? "", body });
    try {
      const workflowRunId = await handleRequest({ user, route, options, url }, request.headers, body);
      // Versions that name this feature tell the server that they serve workflows.
      const tells = options.features.includes("WF_DetectTrigger")
        ? { "Upstash-Workflow-Sdk-Version": "1" }
        : {};
      return Response.json({ workflowRunId }, { headers: tells });
    } catch (error) {
      return Response.json({ error: "Error", message: (error as Error).message }, { status: 500 });
    }
  });
  return place;
}

type Served = { user: WorkflowUser; route: Route; options: Options; url: string };

/** Handles one request to the endpoint. Returns the id of the run. */
async function handleRequest(served: Served, headers: Headers, body: string): Promise<string> {
  if (headers.get("upstash-workflow-is-failure") === "true") return callFailureFunction(served, body);
  const isFirst = headers.get("upstash-workflow-sdk-version") === null;
  const own = ownHeaders(headers);
  if (headers.get("upstash-workflow-callback") !== null) return handleCallback(served, headers, body);
  const runId = isFirst ? `wfr_${randomUUID()}` : (headers.get("upstash-workflow-runid") ?? "");
  if (isFirst) {
    const headers = {
      ...forRun(served, runId, "true"),
      ...toForwardHeaders(own),
      "Content-Type": "application/json",
    };
    await post(served, "publish", { headers, body });
    return runId;
  }
  const [initial, ...history] = (JSON.parse(body) as { body: string; callType: string }[]).filter(
    ({ callType }) => callType === "step",
  );
  const steps = history.map((entry) => JSON.parse(decoded(entry.body)) as Step);
  try {
    await served.route(
      createContext(served, { runId, own, payload: parsePayload(decoded(initial?.body ?? "")), steps }),
    );
  } catch (error) {
    if (error instanceof Posted) return runId;
    throw error;
  }
  await ask(served, `DELETE /v2/workflows/runs/${runId}?cancel=false`);
  return runId;
}

type Run = { runId: string; own: Record<string, string>; payload: Json; steps: Step[] };

function createContext(served: Served, run: Run): PythonContext {
  let count = 0;
  const step = async (
    now: () => Partial<Step>,
    { stepName, stepType }: Pick<Step, "stepName" | "stepType">,
    retries = 0,
  ): Promise<Json> => {
    const stepId = ++count;
    const done = run.steps[stepId - 1];
    if (!done) {
      const step = { ...noStep, stepId, stepName, stepType, ...now() };
      await postStep(served, run, { step, retries });
      throw new Posted();
    }
    if (done.stepName !== stepName || done.stepType !== stepType)
      throw new Error(`Incompatible step ${done.stepName}, not ${stepName}`);
    // The client indexes this member. A step without it ends the call with an error.
    if (done.out === undefined) throw new Error(`the step ${stepName} has no result`);
    return typeof done.out === "string" ? parsePayload(done.out) : done.out;
  };
  return {
    requestPayload: run.payload,
    headers: run.own,
    workflowRunId: run.runId,
    run: async <T extends Json>(name: string, execute: () => T) =>
      (await step(() => ({ out: execute() }), { stepName: name, stepType: "Run" })) as T,
    sleep: async (name, sleepFor) =>
      void (await step(() => ({ sleepFor }), { stepName: name, stepType: "SleepFor" })),
    sleepUntil: async (name, sleepUntil) =>
      void (await step(() => ({ sleepUntil }), { stepName: name, stepType: "SleepUntil" })),
    call: async (name, { url, method = "GET", body = null, headers = {}, retries = 0 }) => {
      const call = { callUrl: url, callMethod: method, callBody: body, callHeaders: headers };
      const result = (await step(() => call, { stepName: name, stepType: "Call" }, retries)) as CallResult;
      return { ...result, body: parsePayload(result.body as string) };
    },
  };
}

/** A step to post, and the number of retries if it is a call. */
type PostedStep = { step: Step; retries: number };

/** Posts one step as a batch of one item. Members of the item without a value are null. */
function postStep(served: Served, run: Run, posted: PostedStep): Promise<string> {
  const { runId, own } = run;
  const { step } = posted;
  const isCall = step.callUrl !== null;
  const timing = {
    ...(step.sleepUntil === null ? {} : { "Upstash-Not-Before": String(step.sleepUntil) }),
    ...(step.sleepFor === null
      ? {}
      : { "Upstash-Delay": typeof step.sleepFor === "number" ? `${step.sleepFor}s` : step.sleepFor }),
  };
  const headers = isCall
    ? {
        "Content-Type": "application/json",
        "Upstash-Method": step.callMethod ?? "",
        ...forCall(served, run, posted),
      }
    : {
        "Content-Type": "application/json",
        ...forRun(served, runId, "false"),
        ...toForwardHeaders(own),
        ...timing,
      };
  const body = isCall
    ? step.callBody
    : { method: "POST", ...step, out: pythonJson(step.out), concurrent: 1, targetStep: null };
  const item = { destination: step.callUrl ?? served.url, headers, body: pythonJson(body), queue: null };
  return ask(served, "POST /v2/batch", {
    headers: { "Content-Type": "application/json" },
    body: pythonJson([item]),
  });
}

/** Returns the headers of everything that is posted for a run to its own endpoint. */
function forRun({ url, options }: Served, runId: string, init: "true" | "false"): Record<string, string> {
  const { features, retries, failureFunction } = options;
  const failure = "Upstash-Failure-Callback";
  return {
    "Upstash-Workflow-Init": init,
    "Upstash-Workflow-RunId": runId,
    "Upstash-Workflow-Url": url,
    "Upstash-Feature-Set": features,
    "Upstash-Forward-Upstash-Workflow-Sdk-Version": "1",
    ...(retries === undefined
      ? {}
      : { "Upstash-Retries": String(retries), [`${failure}-Retries`]: String(retries) }),
    ...(failureFunction && {
      [failure]: url,
      [`${failure}-Forward-Upstash-Workflow-Is-Failure`]: "true",
      [`${failure}-Forward-Upstash-Workflow-Failure-Callback`]: "true",
      [`${failure}-Workflow-Runid`]: runId,
      [`${failure}-Workflow-Init`]: "false",
      [`${failure}-Workflow-Url`]: url,
      [`${failure}-Workflow-Calltype`]: "failureCall",
    }),
  };
}

function forCall(
  { url, options }: Served,
  { runId, own }: Run,
  { step, retries: callRetries }: PostedStep,
): Record<string, string> {
  const { retries = 3 } = options;
  const ofStep = "Upstash-Callback-Forward-Upstash-Workflow";
  return {
    "Upstash-Workflow-Init": "false",
    "Upstash-Workflow-RunId": runId,
    "Upstash-Workflow-Url": url,
    "Upstash-Feature-Set": "WF_NoDelete,InitialBody",
    "Upstash-Retries": String(callRetries),
    "Upstash-Callback-Retries": String(retries),
    "Upstash-Failure-Callback-Retries": String(retries),
    ...Object.fromEntries(
      Object.entries(own).map(([name, value]) => [`Upstash-Callback-Forward-${name}`, value]),
    ),
    ...Object.fromEntries(
      Object.entries(own).map(([name, value]) => [`Upstash-Failure-Callback-Forward-${name}`, value]),
    ),
    ...Object.fromEntries(
      Object.entries(step.callHeaders ?? {}).map(([name, value]) => [`Upstash-Forward-${name}`, value]),
    ),
    "Upstash-Callback": url,
    "Upstash-Callback-Workflow-RunId": runId,
    "Upstash-Callback-Workflow-CallType": "fromCallback",
    "Upstash-Callback-Workflow-Init": "false",
    "Upstash-Callback-Workflow-Url": url,
    "Upstash-Callback-Feature-Set": "LazyFetch,InitialBody",
    [`${ofStep}-Callback`]: "true",
    [`${ofStep}-StepId`]: String(step.stepId),
    [`${ofStep}-StepName`]: step.stepName,
    [`${ofStep}-StepType`]: "Call",
    [`${ofStep}-Concurrent`]: "1",
    [`${ofStep}-ContentType`]: own["content-type"] ?? "application/json",
    "Upstash-Workflow-CallType": "toCallback",
  };
}

/** Posts the result of a call, which a callback reports, as the result of its step. */
async function handleCallback(served: Served, headers: Headers, body: string): Promise<string> {
  const outcome = JSON.parse(body) as {
    status: number;
    body?: string;
    header: Record<string, string[]>;
    maxRetries?: number;
    retried?: number;
  };
  const isFine = outcome.status >= 200 && outcome.status < 300;
  if (!isFine && outcome.maxRetries && outcome.retried !== outcome.maxRetries) return "no-workflow-id";
  const runId = headers.get("upstash-workflow-runid") ?? "";
  const of = (name: string): string => headers.get(`upstash-workflow-${name}`) ?? "";
  if (
    !runId ||
    !of("stepid") ||
    !of("stepname") ||
    of("steptype") !== "Call" ||
    !of("concurrent") ||
    !of("contenttype")
  ) {
    throw new Error("Missing info in callback message source header");
  }
  const result = { status: outcome.status, body: decoded(outcome.body ?? ""), header: outcome.header };
  const step = {
    stepId: Number(of("stepid")),
    stepName: of("stepname"),
    stepType: of("steptype"),
    out: pythonJson(result),
    concurrent: Number(of("concurrent")),
  };
  const all = {
    ...forRun(served, runId, "false"),
    ...toForwardHeaders(ownHeaders(headers)),
    "Content-Type": "application/json",
  };
  await post(served, "publish", { headers: all, body: pythonJson(step) });
  return runId;
}

/** Calls the failure function with the content of a failure callback. */
function callFailureFunction({ options }: Served, body: string): string {
  type Told = {
    status: number;
    body: string;
    header: Record<string, string[]>;
    url: string;
    workflowRunId: string;
  };
  const failure = JSON.parse(body) as Told & { sourceBody: string; sourceHeader: Record<string, string[]> };
  const { message } = JSON.parse(decoded(failure.body)) as { message: string };
  options.failureFunction?.({
    status: failure.status,
    message,
    workflowRunId: failure.workflowRunId,
    headers: failure.sourceHeader,
    payload: parsePayload(decoded(failure.sourceBody)),
  });
  return failure.workflowRunId;
}

type Content = { headers?: Record<string, string>; body?: string };

const post = (served: Served, route: string, content: Content): Promise<string> =>
  ask(served, `POST /v2/${route}/${served.url}`, content);

/** Calls the server. Throws if the server refuses the call, as the client does. */
async function ask({ user }: Served, line: string, { headers = {}, body }: Content = {}): Promise<string> {
  const [method = "", path = ""] = line.split(" ");
  const request = { method, path, headers: Object.entries(headers), body };
  const { status, text } = await exchange(user.url, {
    ...request,
    headers: python(new URL(user.url).host, user.token, request),
  });
  if (status >= 300) throw new Error(`Request failed with status: ${status}, body: ${text}`);
  return text;
}

/**
 * Returns the headers of a request that belong to the user, as the client distinguishes them. Headers of the
 * connection and the signature are among them.
 */
const ownHeaders = (headers: Headers): Record<string, string> =>
  Object.fromEntries(
    [...headers].filter(
      ([name]) => !/^(upstash-workflow-|x-vercel-|x-forwarded-)|^(cf-connecting-ip|cdn-loop)$/.test(name),
    ),
  );

const toForwardHeaders = (own: Readonly<Record<string, string>>): Record<string, string> =>
  Object.fromEntries(
    Object.entries(own).flatMap(([name, value]) => [
      [`Upstash-Forward-${name}`, value],
      [`Upstash-Failure-Callback-Forward-${name}`, value],
    ]),
  );

const decoded = (base64: string): string => Buffer.from(base64, "base64").toString();

function parsePayload(text: string): Json {
  try {
    return JSON.parse(text) as Json;
  } catch {
    return text;
  }
}
