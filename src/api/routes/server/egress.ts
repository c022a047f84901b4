import { egressFields } from "../../fields/egress.ts";
import { toJson } from "../../fields/field.ts";
import { operatorRoute } from "../../route/operator.ts";
import { toSchema } from "../../views/fieldSchema.ts";

/** The route that shows how deliveries leave the server that responds. */
export const egress = operatorRoute({
  method: "GET",
  path: "/v2/admin/egress",
  tag: "Administration",
  summary: "Read the settings of outgoing connections",
  about:
    "Returns the settings of the server that responds. Other servers on the same database can have others. " +
    "`waypost doctor egress` uses them.",
  answers: { 200: { about: "The settings.", schema: toSchema(egressFields) } },
  refusals: [],
  handle: async ({ context }) => ({ status: 200, body: toJson(egressFields, context.egress) }),
});
