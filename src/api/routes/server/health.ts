import { z } from "zod";
import { Refusal } from "../../../engine/core/values/errors.ts";
import type { RouteResponse, RouteContext } from "../../route/route.ts";
import { openRoute } from "../../route/route.ts";
import { choice } from "../../http/parameters.ts";

/** How long the server waits for the store before it reports not ready, in milliseconds. */
const storeTimeout = 2_000;

const healthSchema = z.looseObject({
  status: z.literal("ok").describe("Always ok. A server that is not healthy responds with an error instead."),
  held: z.literal(true).optional().describe("Present while all deliveries are paused by the operator."),
  diskLow: z
    .literal(true)
    .optional()
    .describe("Present while new messages are refused because the disk of the server is almost full."),
  diskShort: z
    .literal(true)
    .optional()
    .describe(
      "Present while history is removed before its retention ends, the oldest first, because the disk of " +
        "the server has little room.",
    ),
  replica: z
    .object({
      lagSeconds: z.number().min(0).describe("For how long changes have been missing in the copy."),
      complete: z.boolean().describe("Whether the copy has the whole store, except for its lag."),
    })
    .optional()
    .describe("The second copy of the store. Present if the server keeps one."),
  inFlight: z
    .int()
    .min(0)
    .optional()
    .describe(
      "The number of deliveries of this node that are in flight or whose outcome is not stored yet. " +
        "Messages that wait, including for a retry, are not counted.",
    ),
});
const healthyAnswers = {
  200: { about: "The server is healthy. The response may have further fields.", schema: healthSchema },
};

const liveness = openRoute({
  method: "GET",
  path: "/v2/health",
  tag: "Health",
  summary: "Check that the server is alive",
  query: z.object({
    ready: choice(["true", "false"])
      .default("false")
      .describe("With true, also checks that the server can take requests, like GET /v2/health/ready."),
  }),
  answers: healthyAnswers,
  refusals: ["stopping"],
  handle: async ({ query, context }) => (query.ready === "true" ? checkReadiness(context) : report(context)),
});

const readinessRoute = openRoute({
  method: "GET",
  path: "/v2/health/ready",
  tag: "Health",
  summary: "Check that the server can take requests",
  about:
    "Responds with 503 while the server is stopping, and if its store does not respond within 2 seconds. " +
    "Also responds with 503 if the store could not save the latest changes, for example because the disk " +
    "is full or the database is unavailable.",
  answers: healthyAnswers,
  refusals: ["stopping"],
  handle: async ({ context }) => checkReadiness(context),
});

/** The path and the response that the Python client expects. */
const clientReadiness = openRoute({
  method: "GET",
  path: "/v2/readiness",
  tag: "Health",
  summary: "Check that the server can take requests, with the response that clients expect",
  about: "Checks the same conditions as `GET /v2/health/ready`.",
  answers: {
    200: {
      about: "The server can take requests.",
      schema: z.object({ ready: z.literal(true).describe("Always true.") }),
    },
  },
  refusals: ["stopping"],
  handle: async ({ context }) => {
    await checkReadiness(context);
    return { status: 200, body: { ready: true } };
  },
});

const report = ({ health }: RouteContext): RouteResponse => ({
  status: 200,
  body: { ...health(), status: "ok" },
});

async function checkReadiness(context: RouteContext): Promise<RouteResponse> {
  const why = context.notReadyReason();
  if (why !== null) throw new Refusal("stopping", `${why}; retry later`);
  if (!(await isStoreResponding(context)))
    throw new Refusal("unavailable", "the store does not respond or cannot save changes; retry later");
  return report(context);
}

async function isStoreResponding({ store }: RouteContext): Promise<boolean> {
  const timeout = AbortSignal.timeout(storeTimeout);
  const gaveUp = new Promise<boolean>((resolve) =>
    timeout.addEventListener("abort", () => resolve(false), { once: true }),
  );
  const storeCheck = Promise.all([store.takesChanges(), store.nextDueAt()]).then(
    ([takes]) => takes,
    () => false,
  );
  return Promise.race([storeCheck, gaveUp]);
}

/** The routes by which load balancers and clients check the server. */
export const healthReports = [liveness, readinessRoute, clientReadiness];
