import { mustBeActive } from "../../core/accounts/plans.ts";
import { mustBeUnrestricted, mustHaveVerb } from "../../core/model/rights.ts";
import { Refusal } from "../../core/values/errors.ts";
import type { Proof } from "../auth/bearer.ts";
import type { Route } from "../route/route.ts";
import { changesAnything, requiredVerb } from "../route/route.ts";

/**
 * Throws `Refusal` for a token that is not good for a route, and for a passive account at a route that
 * changes anything. Steps of runs that have begun are accepted from a passive account, and it can end its
 * credentials.
 */
export function checkRights({ account, right }: Proof, route: Route): void {
  const verb = requiredVerb(route);
  if (right === "read" && verb !== "read")
    throw new Refusal(
      "forbidden",
      `token: it is for reading only; this request needs the other token of the account, or one with the verb ${verb}`,
    );
  if (typeof right === "object") {
    if (!route.looksAtVerb) mustHaveVerb(right, verb);
    if (verb === "publish" && !route.looksAtScope) mustBeUnrestricted(right, "what hears of this may be anywhere");
  }
  if (changesAnything(route) && route.operation !== "step" && !route.forPassive) mustBeActive(account);
}
