import { z } from "zod";
import { readPlan } from "../../engine/core/accounts/plans.ts";
import { Refusal } from "../../engine/core/values/errors.ts";
import { route } from "../../api/route/route.ts";

/** The route of the metrics of this server. */
export const metrics = route({
  method: "GET",
  path: "/metrics",
  tag: "Health",
  summary: "Read the metrics of the server",
  about:
    "Returns the metrics of this server for Prometheus: as OpenMetrics if the Accept header names that " +
    "format, else as text in the format 0.0.4. They cover all accounts, so only the token of an account " +
    "without a plan may read them: such an account is the operator's own. With `--metrics-port`, the " +
    "server also has them on another port, without a token.",
  answers: { 200: { about: "The metrics.", contentType: "text/plain", schema: z.string() } },
  refusals: ["forbidden"],
  handle: async ({ account, incoming: { rawHeaders }, context }) => {
    if (readPlan(account) !== "selfHosted" || !context.metrics)
      throw new Refusal("forbidden", "token: only an account without a plan may read the metrics");
    const at = rawHeaders.findIndex((name, index) => index % 2 === 0 && /^accept$/i.test(name));
    const { contentType, text } = context.metrics(at === -1 ? undefined : rawHeaders[at + 1]);
    return { status: 200, body: text, headers: { "Content-Type": contentType } };
  },
});
