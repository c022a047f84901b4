import { z } from "zod";
import { Refusal } from "../../../core/values/errors.ts";
import type { Answer, Parts } from "../../route/route.ts";
import { openRoute } from "../../route/route.ts";
import { choice } from "../../http/parameters.ts";

/** A store that does not answer within this does not answer. */
const patience = 2_000;

const health = z.looseObject({
  status: z.literal("ok"),
  inFlight: z
    .int()
    .optional()
    .describe(
      "Deliveries of this node that are running, or whose outcome is not stored yet. Messages that wait, also for a retry, are not counted.",
    ),
});
const isWell = { 200: { about: "It is well. Figures may stand beside.", schema: health } };

const live = openRoute({
  method: "GET",
  path: "/v2/health",
  tag: "Health",
  summary: "Is the server alive?",
  query: z.object({ ready: choice(["true", "false"]).default("false").describe("With true: can it take requests, too?") }),
  answers: isWell,
  refusals: ["stopping"],
  handle: async ({ query, parts }) => (query.ready === "true" ? readiness(parts) : report(parts)),
});

const ready = openRoute({
  method: "GET",
  path: "/v2/health/ready",
  tag: "Health",
  summary: "Can the server take requests?",
  about:
    "Not while it stops, while its store does not answer, or when that could not take the last changes: a full disk, a database that is away.",
  answers: isWell,
  refusals: ["stopping"],
  handle: async ({ parts }) => readiness(parts),
});

/** The path and the response that the Python client expects. */
const readyForClients = openRoute({
  method: "GET",
  path: "/v2/readiness",
  tag: "Health",
  summary: "Can the server take requests? The response that clients read",
  about: "Ready and not ready under the same conditions as `GET /v2/health/ready`.",
  answers: { 200: { about: "The server can take requests.", schema: z.object({ ready: z.literal(true) }) } },
  refusals: ["stopping"],
  handle: async ({ parts }) => {
    await readiness(parts);
    return { status: 200, body: { ready: true } };
  },
});

const report = ({ health }: Parts): Answer => ({ status: 200, body: { ...health(), status: "ok" } });

async function readiness(parts: Parts): Promise<Answer> {
  const why = parts.unready();
  if (why !== null) throw new Refusal("stopping", `${why}; ask again`);
  if (!(await answers(parts))) throw new Refusal("stopping", "the store does not answer, or takes no changes; ask again");
  return report(parts);
}

async function answers({ store }: Parts): Promise<boolean> {
  const patienceOver = AbortSignal.timeout(patience);
  const gaveUp = new Promise<boolean>((resolve) => patienceOver.addEventListener("abort", () => resolve(false), { once: true }));
  const asked = Promise.all([store.takesChanges(), store.nextDueAt()]).then(
    ([takes]) => takes,
    () => false,
  );
  return Promise.race([asked, gaveUp]);
}

export const healthReports = [live, ready, readyForClients];
