import type { Session } from "../session.ts";
import type { Author, Brand } from "../workflows.ts";
import { startAuthor } from "../workflows.ts";

const brands: readonly Brand[] = ["Svc", "Upstash"];

const failureHeaders = ({ brand, url }: Author, kind: string): Record<string, string> => ({
  [`${brand}-Failure-Callback`]: url(kind, "failed"),
  [`${brand}-Failure-Callback-Forward-${brand}-Workflow-Is-Failure`]: "true",
  [`${brand}-Failure-Callback-Forward-X-Desk`]: "d",
  [`${brand}-Failure-Callback-Retries`]: "0",
});

/** Waits until the dead letter of a run has the result of its failure callback. */
const letterOf = async (author: Author, runId: string, state: string): Promise<string> => {
  const { json } = await author.eventually(
    `/v2/workflows/dlq?workflowRunId=${runId}`,
    ({ messages }) => messages?.[0]?.failureCallbackInfo?.state === state,
  );
  return json.messages[0].dlqId as string;
};

/** Runs that fail, with failure callbacks that succeed, fail, and are called again. */
export async function recordFailures(session: Session): Promise<void> {
  for (const brand of brands) {
    const author = await startAuthor(session, "failure", { brand, kind: "workflow-489" });
    await author.begin("heard", failureHeaders(author, "workflow"));
    const heard = await letterOf(author, "heard", "CALLBACK_SUCCESS");
    await author.ask("GET", `/v2/workflows/dlq/${heard}`);
    await author.ask("GET", "/v2/workflows/logs?workflowRunId=heard");
    await author.ask("POST", `/v2/workflows/dlq/callback/${heard}`);
    await author.ask("DELETE", `/v2/workflows/dlq/callback/${heard}`);
    await author.begin("unheard", failureHeaders(author, "500"));
    const unheard = await letterOf(author, "unheard", "CALLBACK_FAIL");
    session.destination.mend(new URL(author.url("500", "failed")).pathname, "workflow");
    await author.ask("POST", `/v2/workflows/dlq/callback/${unheard}`);
    await letterOf(author, "unheard", "CALLBACK_SUCCESS");
    await author.ask("GET", "/v2/workflows/dlq/groups");
    await author.ask("GET", "/v2/dlq?source=workflow&count=1");
    await author.ask("GET", "/v2/dlq");
    await author.ask("GET", "/v2/workflows/events?workflowRunId=heard");
  }
}

/** Resuming and restarting runs from the dead letter queue, and deleting from it. */
export async function recordRunDeadLetters(session: Session): Promise<void> {
  for (const brand of brands) {
    const author = await startAuthor(session, "run-dlq", { brand, kind: "workflow-489" });
    const ids: string[] = [];
    for (const run of ["a", "b", "c", "d", "e", "f"]) {
      await author.begin(run, {
        [`${brand}-Label`]: `label-${run}`,
        [`${brand}-Failure-Callback`]: author.url("workflow", "failed"),
      });
      ids.push(await letterOf(author, run, "CALLBACK_SUCCESS"));
    }
    const [a, b, c, d, e] = ids;
    const page = await author.ask("GET", "/v2/workflows/dlq?count=2");
    await author.ask("GET", `/v2/workflows/dlq?count=2&cursor=${page.json.cursor}`);
    session.destination.mend(new URL(author.endpoint).pathname, "workflow");
    await author.ask("POST", `/v2/workflows/dlq/resume/${a}?dryRun=true`);
    const started = [
      () => author.ask("POST", `/v2/workflows/dlq/resume/${a}`),
      () =>
        author.ask("POST", `/v2/workflows/dlq/restart/${b}`, {
          headers: { [`${brand}-Retries`]: "1", [`${brand}-Label`]: "new" },
        }),
      () => author.ask("POST", `/v2/workflows/dlq/resume?dlqIds=${c}`),
      () => author.ask("POST", "/v2/workflows/dlq/restart?label=label-d"),
    ];
    let count = ids.length;
    for (const start of started) {
      await start();
      await author.called(++count);
    }
    const unknown = "1725323658779-0";
    const gone = [
      `resume/${a}`,
      `restart/${d}`,
      "resume/nonsense",
      `restart?dlqIds=${unknown}`,
      `callback/${unknown}`,
    ];
    for (const path of gone) await author.ask("POST", `/v2/workflows/dlq/${path}`);
    await author.ask("DELETE", `/v2/workflows/dlq/${e}`);
    await author.ask("DELETE", `/v2/workflows/dlq/${e}`);
    await author.ask("DELETE", "/v2/workflows/dlq?label=label-f");
    await author.ask("GET", "/v2/workflows/dlq");
    await author.ask("GET", "/v2/workflows/logs?state=RUN_STARTED");
    await author.ask("DELETE", "/v2/workflows/runs");
    await author.ask("GET", "/v2/audit");
  }
}
