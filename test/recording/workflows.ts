import type { Area } from "./area.ts";
import { startArea } from "./area.ts";
import type { Answer, Session } from "./session.ts";

/** The prefix of headers, in one of its two spellings. */
export type Brand = "Svc" | "Upstash";

/** The features that a current workflow client reports. */
export const features = "LazyFetch,InitialBody,WF_DetectTrigger,WF_TriggerOnConfig";

/** Headers of what an endpoint posts for a run. */
export const headersOfRun = (brand: Brand, runId: string, url: string): Record<string, string> => ({
  [`${brand}-Workflow-Init`]: "false",
  [`${brand}-Workflow-RunId`]: runId,
  [`${brand}-Workflow-Url`]: url,
  [`${brand}-Feature-Set`]: features,
  [`${brand}-Workflow-Sdk-Version`]: "1",
  [`${brand}-Forward-${brand}-Workflow-Sdk-Version`]: "1",
  "content-type": "application/json",
});

type Item = { destination?: string; body: unknown; headers?: Record<string, string> };

/** An endpoint that only answers, and what the script posts in its place. */
export type Author = Area & {
  brand: Brand;
  endpoint: string;
  /** Starts a run as a client does: a batch of one item. */
  begin(runId: string, headers?: Record<string, string>): Promise<Answer>;
  post(runId: string, items: Item[]): Promise<Answer>;
  /** Waits until `count` deliveries have arrived at the endpoint since the start. */
  called(count: number): Promise<void>;
  finish(runId: string, result?: string): Promise<Answer>;
};

/** Makes an account for workflows of one brand, with an endpoint at `/<kind>/<name>.<label>`. */
export async function startAuthor(
  session: Session,
  name: string,
  { brand, kind = "workflow", label = "work" }: { brand: Brand; kind?: string; label?: string },
): Promise<Author> {
  const area = await startArea(session, `${name}-${brand}`);
  const endpoint = area.url(kind, label);
  const post = (runId: string, items: Item[], more: Record<string, string> = {}): Promise<Answer> => {
    const batch = items.map(({ destination = endpoint, body, headers = {} }) => ({
      destination,
      headers: { ...headersOfRun(brand, runId, endpoint), ...more, ...headers },
      body: typeof body === "string" ? body : JSON.stringify(body),
    }));
    return area.json("POST /v2/batch", batch);
  };
  return {
    ...area,
    brand,
    endpoint,
    post,
    begin: (runId, headers = {}) =>
      post(runId, [{ body: "payload" }], {
        ...headers,
        [`${brand}-Workflow-Init`]: "true",
      }),
    called: (count) => area.stepDelivered(new URL(endpoint).pathname, count),
    finish: (runId, result = '"done"') =>
      area.ask("DELETE", `/v2/workflows/runs/${runId}?cancel=false`, {
        body: result,
      }),
  };
}

/** A step that has run. */
export const ran = (stepId: number, stepName: string, more: object = {}) => ({
  stepId,
  stepName,
  stepType: "Run",
  out: `"${stepName}"`,
  concurrent: 1,
  ...more,
});
