import { Refusal } from "../../engine/core/values/errors.ts";
import { readActor } from "./actor.ts";
import { readBasic } from "../auth/basic.ts";
import type { Attempts } from "../auth/lockout.ts";
import type {
  RouteResponse,
  RouteRequest,
  AccountAdmin,
  RouteDescription,
  IncomingRequest,
  RouteContext,
  Route,
  ParameterSchema,
} from "./route.ts";
import { noParameters, readQuery, withWarnings } from "./route.ts";
import { isSameSecret } from "../auth/token.ts";

/** The minimum length of the operator password, in characters. */
export const shortestPassword = 16;

const user = "operator";
const howTo =
  `operator: requires the header Authorization: Basic with the user name ${user} ` +
  "and the password of WAYPOST_OPERATOR_PASSWORD";
const disabledMessage =
  "operator: this interface is turned off; start the server with WAYPOST_OPERATOR_PASSWORD, " +
  `a password of at least ${shortestPassword} characters`;

/**
 * Throws `Refusal` if a request does not have the operator's credentials. `attempts` counts failed attempts
 * and refuses further ones after too many.
 */
export function assertOperator(
  { operator }: Pick<RouteContext, "operator">,
  authorization: string | undefined,
  { attempts, address }: { attempts: Attempts; address: string | null },
): void {
  if (!operator) throw new Refusal("forbidden", disabledMessage);
  const credentials = readBasic(authorization, howTo);
  attempts.assertNotLocked(address, user);
  if (!isSameSecret(`${credentials.user}:${credentials.password}`, `${user}:${operator.password}`))
    throw attempts.recordFailure(
      { address, user },
      new Refusal("unauthorized", "operator: user name or password is wrong"),
    );
}

type OperatorRequest<P extends ParameterSchema, Q extends ParameterSchema> = Omit<
  RouteRequest<P, Q>,
  "account"
> & {
  accountAdmin: AccountAdmin;
};

/** Returns a route for the operator. The audit log of a changed account names the operator. */
export function operatorRoute<
  P extends ParameterSchema = typeof noParameters,
  Q extends ParameterSchema = typeof noParameters,
>(
  row: RouteDescription & {
    params?: P;
    query?: Q;
    handle(request: OperatorRequest<P, Q>): Promise<RouteResponse>;
  },
): Route {
  const { handle, ...description } = row;
  const params: ParameterSchema = row.params ?? noParameters;
  const query: ParameterSchema = row.query ?? noParameters;
  const access = "operator";
  const respond = async (incoming: IncomingRequest, context: RouteContext): Promise<RouteResponse> => {
    if (!context.operator) throw new Refusal("forbidden", disabledMessage);
    const accountAdmin = context.operator.accountAdminFor(readActor({ access }, incoming));
    const { values, warnings } = readQuery(description, query, incoming);
    const request = { params: incoming.params, query: values, incoming, context, accountAdmin };
    // The schemas are those of the row, so their output has the types that the handler declares.
    return withWarnings(await handle(request as unknown as OperatorRequest<P, Q>), warnings);
  };
  return { ...description, access, params, query, respond };
}
