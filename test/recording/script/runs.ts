import type { Session } from "../session.ts";
import type { Author, Brand } from "../workflows.ts";
import { features, headersOfRun, ran, startAuthor } from "../workflows.ts";

const brands: readonly Brand[] = ["Svc", "Upstash"];

/** Ways to start runs, and to cancel them. */
export async function recordTriggers(session: Session): Promise<void> {
  for (const brand of brands) {
    const author = await startAuthor(session, "trigger", { brand });
    const { endpoint } = author;
    const trigger = `/v2/trigger/${endpoint}`;
    const given = {
      headers: {
        "content-type": "text/plain",
        [`${brand}-Label`]: "by-rest",
        [`${brand}-Forward-X-Mine`]: "m",
      },
      body: "payload",
    };
    const first = await author.ask("POST", trigger, given);
    await author.called(1);
    await author.ask("POST", trigger, {
      ...given,
      headers: { ...given.headers, [`${brand}-Workflow-RunId`]: "chosen" },
    });
    await author.called(2);
    await author.ask("POST", trigger, { headers: { [`${brand}-Workflow-RunId`]: "chosen" } });
    await author.ask("POST", trigger, { headers: { [`${brand}-Retries`]: "none" } });
    await author.ask("POST", "/v2/trigger/none");
    await author.json("POST /v2/batch/trigger", [
      { destination: endpoint, body: "one", headers: { [`${brand}-Workflow-RunId`]: "b-one" } },
      {
        destination: endpoint,
        body: {
          two: 2,
        },
        headers: { [`${brand}-Workflow-RunId`]: "b-two", [`${brand}-Delay`]: "1h" },
      },
    ]);
    await author.called(3);
    await author.begin("by-batch", { [`${brand}-Retries`]: "2", [`${brand}-Retry-Delay`]: "1000" });
    await author.called(4);
    await author.begin("by-batch");
    await author.ask("POST", `/v2/publish/${endpoint}`, {
      headers: { ...headersOfRun(brand, "by-publish", endpoint), [`${brand}-Workflow-Init`]: "true" },
      body: "published",
    });
    await author.called(5);
    await author.ask("GET", "/v2/workflows/runs/by-batch");
    await author.ask("GET", "/v2/workflows/runs/by-batch/status");
    await author.ask("GET", "/v2/workflows/runs/b-two/status");
    await author.ask("GET", "/v2/workflows/runs/none/status");
    await author.ask("DELETE", `/v2/workflows/runs/${first.json.workflowRunId}?cancel=true`);
    await author.ask("DELETE", "/v2/workflows/runs/none");
    await author.ask("DELETE", "/v2/workflows/runs?workflowRunIds=chosen&workflowRunIds=none");
    await author.ask("DELETE", "/v2/workflows/runs?label=by-rest");
    await author.json("DELETE /v2/workflows/runs", { workflowUrl: endpoint });
    await author.ask("GET", "/v2/workflows/logs?count=2");
    await author.ask("GET", "/v2/workflows/logs?state=RUN_CANCELED&trimBody=0");
    await author.ask("GET", "/v2/workflows/logs?state=LOST");
    const other = author.url("200", "no-workflow");
    await author.ask("POST", `/v2/trigger/${other}`, {
      headers: { [`${brand}-Workflow-RunId`]: "undetected" },
    });
    await author.eventually("/v2/workflows/dlq", ({ messages }) => {
      return messages?.[0]?.failureCallbackInfo?.state === "CALLBACK_SUCCESS";
    });
  }
}

/** A run through all kinds of steps. */
export async function recordRuns(session: Session): Promise<void> {
  for (const brand of brands) {
    const author = await startAuthor(session, "run", { brand });
    await author.begin("r", {
      [`${brand}-Forward-X-Mine`]: "m",
      [`${brand}-Label`]: "l",
      [`${brand}-Forward-${brand}-Label`]: "l",
    });
    await author.called(1);
    await author.post("r", [{ body: ran(1, "one") }]);
    await author.called(2);
    const nap = { stepId: 2, stepName: "nap", stepType: "SleepFor", sleepFor: 1, concurrent: 1 };
    await author.post("r", [{ body: nap, headers: { [`${brand}-Delay`]: "1s" } }]);
    await author.ask("GET", "/v2/workflows/runs/r/status");
    await author.called(3);
    await call(author);
    await wait(author);
    await pair(author);
    await hooks(author);
    await author.ask("GET", "/v2/workflows/runs/r");
    await author.ask("GET", "/v2/workflows/logs?workflowRunId=r");
    await author.finish("r");
    await author.finish("r");
    await author.ask("GET", "/v2/workflows/runs/r");
    await author.post("r", [{ body: ran(9, "late") }]);
    for (const path of [
      "logs?label=l",
      "logs?label=l&trimBody=-1",
      "events?groupBy=workflowRunId",
      "messageLogs?workflowRunId=r",
      "events?count=3",
    ])
      await author.ask("GET", `/v2/workflows/${path}`);
  }
}

async function call(author: Author): Promise<void> {
  const { brand, endpoint } = author;
  const callback = `${brand}-Callback`;
  const forward = `${callback}-Forward-${brand}-Workflow`;
  const { [`${brand}-Forward-${brand}-Workflow-Sdk-Version`]: _none, ...own } = headersOfRun(
    brand,
    "r",
    endpoint,
  );
  const headers = {
    [callback]: endpoint,
    [`${callback}-Workflow-RunId`]: "r",
    [`${callback}-Workflow-CallType`]: "fromCallback",
    [`${callback}-Workflow-Init`]: "false",
    [`${callback}-Workflow-Url`]: endpoint,
    [`${callback}-Feature-Set`]: features,
    [`${forward}-Callback`]: "true",
    [`${forward}-StepId`]: "3",
    [`${forward}-StepName`]: "call",
    [`${forward}-StepType`]: "Call",
    [`${forward}-Concurrent`]: "1",
    [`${forward}-ContentType`]: "text/plain",
    [`${brand}-Forward-X-Call`]: "c",
    [`${brand}-Method`]: "PUT",
    [`${brand}-Retries`]: "0",
    [`${brand}-Workflow-CallType`]: "toCallback",
    ...own,
    [`${brand}-Feature-Set`]: "WF_NoDelete,InitialBody",
  };
  await author.json("POST /v2/batch", [
    { destination: author.url("404", "third"), headers, body: "question" },
  ]);
  await author.called(4);
  await author.ask("POST", `/v2/publish/${endpoint}`, {
    headers: headersOfRun(brand, "r", endpoint),
    body: JSON.stringify({
      stepId: 3,
      stepName: "call",
      stepType: "Call",
      out: '{"status":404}',
      concurrent: 1,
    }),
  });
  await author.called(5);
}

async function wait(author: Author): Promise<void> {
  const { brand, endpoint } = author;
  const headers = { ...headersOfRun(brand, "r", endpoint), [`${brand}-Workflow-CallType`]: "step" };
  const waiting = (stepId: number, timeout: string) => ({
    url: endpoint,
    timeout,
    timeoutUrl: endpoint,
    step: { stepId, stepType: "Wait", stepName: `wait-${stepId}`, concurrent: 1 },
    timeoutHeaders: Object.fromEntries(Object.entries(headers).map(([name, value]) => [name, [value]])),
  });
  await author.json("POST /v2/wait/paid", waiting(4, "1d"), { headers });
  await author.ask("GET", "/v2/waiters/paid");
  await author.ask("GET", "/v2/workflows/runs/r/status");
  await author.ask("POST", "/v2/notify/paid", { body: "yes" });
  await author.called(6);
  await author.ask("POST", "/v2/notify/paid", { body: "nobody waits" });
  await author.ask("POST", "/v2/notify/r/early", { body: '{"early":true}' });
  await author.json("POST /v2/wait/early", waiting(5, "1d"), { headers });
  await author.called(7);
  await author.json("POST /v2/wait/never", waiting(6, "1s"), { headers });
  await author.called(8);
  await author.ask("POST", "/v2/notify/none/early");
  await author.json("POST /v2/wait/early", waiting(7, "soon"), { headers });
  await author.ask("GET", "/v2/waiters/none");
}

async function pair(author: Author): Promise<void> {
  const plan = (targetStep: number) => ({
    stepId: 0,
    stepName: `s${targetStep}`,
    stepType: "Run",
    concurrent: 2,
    targetStep,
  });
  // The delay of the second keeps the order of the deliveries.
  await author.post("r", [
    { body: plan(7) },
    {
      body: plan(8),
      headers: { [`${author.brand}-Delay`]: "1s" },
    },
  ]);
  await author.called(10);
  let count = 10;
  for (const stepId of [8, 7]) {
    await author.post("r", [{ body: ran(stepId, `s${stepId}`, { concurrent: 2 }) }]);
    await author.called(++count);
  }
}

async function hooks(author: Author): Promise<void> {
  const { brand, endpoint, session } = author;
  const { UserID: user } = JSON.parse(atob(author.account.token)) as { UserID: string };
  session.keepSecret(user);
  const hook = `/v2/workflows/hooks/${user}/r/evt_hook`;
  const headers = { ...headersOfRun(brand, "r", endpoint), [`${brand}-Workflow-CallType`]: "step" };
  const step = (stepId: number) => ({ stepId, stepType: "WaitForWebhook", stepName: "hook", concurrent: 1 });
  await author.ask("PUT", `${hook}?q=1`, {
    token: null,
    body: "stored",
    headers: { "x-hook": "h", "content-type": "text/plain" },
  });
  await author.json("POST /v2/wait/evt_hook", { url: endpoint, timeout: "1d", step: step(9) }, { headers });
  await author.called(13);
  await author.json("POST /v2/wait/evt_hook", { url: endpoint, timeout: "1d", step: step(10) }, { headers });
  await author.ask("GET", hook, { token: null });
  await author.called(14);
  for (const method of ["PATCH", "DELETE"]) await author.ask(method, hook, { token: null, body: "kept" });
  await author.ask("POST", hook.replace("/r/", "/none/"), { token: null });
}

/** Records a run that invokes another run and receives its result. */
export async function recordInvoke(session: Session): Promise<void> {
  for (const brand of brands) {
    const author = await startAuthor(session, "invoke", { brand });
    const child = author.url("workflow", "child");
    const created = (
      await author.json(`POST /v2/trigger/${author.endpoint}`, "p", {
        headers: { [`${brand}-Workflow-RunId`]: "parent" },
      })
    ).json;
    await author.called(1);
    const lists = Object.fromEntries(
      Object.entries(headersOfRun(brand, "parent", author.endpoint)).map(([name, value]) => [name, [value]]),
    );
    const invoke = (runId: string, stepId: number) =>
      author.ask("POST", `/v2/publish/${child}`, {
        headers: {
          ...headersOfRun(brand, runId, child),
          [`${brand}-Workflow-Init`]: "true",
          [`${brand}-Workflow-Invoke`]: "true",
          [`${brand}-Forward-${brand}-Workflow-Invoke-Count`]: "1",
        },
        body: JSON.stringify({
          body: "for the child",
          headers: lists,
          workflowRunId: "parent",
          workflowRunCreatedAt: created.workflowCreatedAt,
          workflowUrl: author.endpoint,
          step: { stepId, stepName: "invoke", stepType: "Invoke", concurrent: 1 },
        }),
      });
    await invoke("child-1", 1);
    await author.stepDelivered(new URL(child).pathname, 1);
    await author.ask("DELETE", "/v2/workflows/runs/child-1?cancel=false", { body: '{"of":"child"}' });
    await author.called(2);
    await invoke("child-2", 2);
    await author.stepDelivered(new URL(child).pathname, 2);
    await author.ask("DELETE", "/v2/workflows/runs/child-2");
    await author.called(3);
    await author.ask("GET", "/v2/workflows/logs?workflowRunId=child-1");
    await author.ask("GET", "/v2/workflows/logs?workflowRunId=parent");
    await author.finish("parent");
  }
}
