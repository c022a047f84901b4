import { z } from "zod";
import { Refusal } from "../../../core/values/errors.ts";
import type { RouteResponse, RouteContext } from "../../route/route.ts";
import { openRoute } from "../../route/route.ts";
import { choice } from "../../http/parameters.ts";

/** A store that does not answer within this does not answer. */
const storeTimeout = 2_000;

const healthSchema = z.looseObject({
  status: z.literal("ok"),
  inFlight: z
    .int()
    .optional()
    .describe(
      "Deliveries of this node that are running, or whose outcome is not stored yet. Messages that wait, also for a retry, are not counted.",
    ),
});
const healthyAnswers = { 200: { about: "It is well. Figures may stand beside.", schema: healthSchema } };

const liveness = openRoute({
  method: "GET",
  path: "/v2/health",
  tag: "Health",
  summary: "Is the server alive?",
  query: z.object({ ready: choice(["true", "false"]).default("false").describe("With true: can it take requests, too?") }),
  answers: healthyAnswers,
  refusals: ["stopping"],
  handle: async ({ query, context }) => (query.ready === "true" ? checkReadiness(context) : report(context)),
});

const readinessRoute = openRoute({
  method: "GET",
  path: "/v2/health/ready",
  tag: "Health",
  summary: "Can the server take requests?",
  about:
    "Not while it stops, while its store does not answer, or when that could not take the last changes: a full disk, a database that is away.",
  answers: healthyAnswers,
  refusals: ["stopping"],
  handle: async ({ context }) => checkReadiness(context),
});

/** The path and the response that the Python client expects. */
const clientReadiness = openRoute({
  method: "GET",
  path: "/v2/readiness",
  tag: "Health",
  summary: "Can the server take requests? The response that clients read",
  about: "Ready and not ready under the same conditions as `GET /v2/health/ready`.",
  answers: { 200: { about: "The server can take requests.", schema: z.object({ ready: z.literal(true) }) } },
  refusals: ["stopping"],
  handle: async ({ context }) => {
    await checkReadiness(context);
    return { status: 200, body: { ready: true } };
  },
});

const report = ({ health }: RouteContext): RouteResponse => ({ status: 200, body: { ...health(), status: "ok" } });

async function checkReadiness(context: RouteContext): Promise<RouteResponse> {
  const why = context.notReadyReason();
  if (why !== null) throw new Refusal("stopping", `${why}; ask again`);
  if (!(await isStoreResponding(context))) throw new Refusal("stopping", "the store does not answer, or takes no changes; ask again");
  return report(context);
}

async function isStoreResponding({ store }: RouteContext): Promise<boolean> {
  const timeout = AbortSignal.timeout(storeTimeout);
  const gaveUp = new Promise<boolean>((resolve) => timeout.addEventListener("abort", () => resolve(false), { once: true }));
  const storeCheck = Promise.all([store.takesChanges(), store.nextDueAt()]).then(
    ([takes]) => takes,
    () => false,
  );
  return Promise.race([storeCheck, gaveUp]);
}

export const healthReports = [liveness, readinessRoute, clientReadiness];
