import { Refusal } from "../../core/values/errors.ts";
import { readActor } from "./actor.ts";
import { readBasic } from "../auth/basic.ts";
import type { Lockout } from "../auth/lockout.ts";
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

/** Of the password of whoever runs the server, in characters. */
export const shortestPassword = 16;

const user = "operator";
const howTo = `operator: give the header Authorization: Basic with the user name ${user}, and the password of WAYPOST_OPERATOR_PASSWORD`;
const disabledMessage = `operator: this interface is turned off; it is there when the server is started with WAYPOST_OPERATOR_PASSWORD, a password of ${shortestPassword} characters or more`;

/** Throws `Refusal` for whoever is not the one who runs the server. `lockout` counts tries that fail, and ends them. */
export function checkOperator(
  { operator }: Pick<RouteContext, "operator">,
  authorization: string | undefined,
  { lockout, address }: { lockout: Lockout; address: string | null },
): void {
  if (!operator) throw new Refusal("forbidden", disabledMessage);
  const credentials = readBasic(authorization, howTo);
  lockout.checkNotLocked(address, user);
  if (!isSameSecret(`${credentials.user}:${credentials.password}`, `${user}:${operator.password}`))
    throw lockout.recordFailure({ address, user }, new Refusal("unauthorized", "operator: user name or password is wrong"));
}

type OperatorRequest<P extends ParameterSchema, Q extends ParameterSchema> = Omit<RouteRequest<P, Q>, "account"> & {
  accountAdmin: AccountAdmin;
};

/** A route for whoever runs the server. The audit log of the account that he changes names him. */
export function operatorRoute<P extends ParameterSchema = typeof noParameters, Q extends ParameterSchema = typeof noParameters>(
  row: RouteDescription & { params?: P; query?: Q; handle(request: OperatorRequest<P, Q>): Promise<RouteResponse> },
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
    // The schemas are those of the row, so what they made has the types that the handler was declared with.
    return withWarnings(await handle(request as unknown as OperatorRequest<P, Q>), warnings);
  };
  return { ...description, access, params, query, respond };
}
