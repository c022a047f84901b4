import { Refusal } from "../../core/values/errors.ts";
import { actorOf } from "./actor.ts";
import { readBasic } from "../auth/basic.ts";
import type { Lockout } from "../auth/lockout.ts";
import type { Answer, Call, Desk, Facts, Incoming, Parts, Route, Shape } from "./route.ts";
import { none, readQuery, withWarnings } from "./route.ts";
import { isSame } from "../auth/token.ts";

/** Of the password of whoever runs the server, in characters. */
export const shortestPassword = 16;

const user = "operator";
const howTo = `operator: give the header Authorization: Basic with the user name ${user}, and the password of WAYPOST_OPERATOR_PASSWORD`;
const turnedOff = `operator: this interface is turned off; it is there when the server is started with WAYPOST_OPERATOR_PASSWORD, a password of ${shortestPassword} characters or more`;

/** Throws `Refusal` for whoever is not the one who runs the server. `lockout` counts tries that fail, and ends them. */
export function checkOperator(
  { operator }: Pick<Parts, "operator">,
  authorization: string | undefined,
  { lockout, address }: { lockout: Lockout; address: string | null },
): void {
  if (!operator) throw new Refusal("forbidden", turnedOff);
  const given = readBasic(authorization, howTo);
  lockout.mustNotWait(address, user);
  if (!isSame(`${given.user}:${given.password}`, `${user}:${operator.password}`))
    throw lockout.refusalFor({ address, user }, new Refusal("unauthorized", "operator: user name or password is wrong"));
}

type Handling<P extends Shape, Q extends Shape> = Omit<Call<P, Q>, "account"> & { desk: Desk };

/** A route for whoever runs the server. The audit log of the account that he changes names him. */
export function operatorRoute<P extends Shape = typeof none, Q extends Shape = typeof none>(
  row: Facts & { params?: P; query?: Q; handle(call: Handling<P, Q>): Promise<Answer> },
): Route {
  const { handle, ...facts } = row;
  const params: Shape = row.params ?? none;
  const query: Shape = row.query ?? none;
  const access = "operator";
  const answer = async (incoming: Incoming, parts: Parts): Promise<Answer> => {
    if (!parts.operator) throw new Refusal("forbidden", turnedOff);
    const desk = parts.operator.deskFor(actorOf({ access }, incoming));
    const { values, warnings } = readQuery(facts, query, incoming);
    const call = { params: incoming.params, query: values, incoming, parts, desk };
    // The schemas are those of the row, so what they made has the types that the handler was declared with.
    return withWarnings(await handle(call as unknown as Handling<P, Q>), warnings);
  };
  return { ...facts, access, params, query, answer };
}
