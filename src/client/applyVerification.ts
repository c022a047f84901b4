import { hmacDefaults } from "../engine/core/model/webhookSource.ts";
import type { Difference } from "./applySettings.ts";
import { compareFields } from "./applySteps.ts";
import type { Fields } from "./terminal/fields.ts";
import { isObject, readObject } from "./terminal/fields.ts";

/**
 * Returns the differences between how a source verifies calls and how the file says. A server never shows
 * the secrets and the verify token, so only the number of secrets is compared.
 */
export function compareVerification(given: unknown, shown: unknown): Difference[] {
  if (!isObject(given) || !isObject(shown)) {
    const [after, before] = [given, shown].map((one) => (isObject(one) ? one["scheme"] : null));
    return compareFields({ verification: after }, { verification: before });
  }
  const wanted = listParts(toShown(given));
  const present = listParts(shown);
  // An earlier version of the server shows only these two.
  const names = Object.hasOwn(shown, "header") || given["scheme"] !== "hmac" ? null : ["scheme", "secrets"];
  const missing = Object.fromEntries(Object.keys(present).map((name) => [name, null]));
  return compareFields({ ...missing, ...wanted }, present)
    .filter(({ field }) => names?.includes(field) ?? true)
    .map(({ field, before, after }) => ({ field: `verification.${field}`, before, after }));
}

/** Returns a verification of the file as a server shows it once it is stored. */
function toShown({ secret, timestamp, handshake, ...given }: Fields): Fields {
  const { timestamp: timestampDefaults, ...defaults } = hmacDefaults;
  const { verifyToken: _hidden, ...visible } = isObject(handshake) ? handshake : {};
  return {
    ...(given["scheme"] === "hmac" && defaults),
    ...given,
    secrets: Array.isArray(secret) ? secret.length : 1,
    ...(isObject(timestamp) && { timestamp: { ...timestampDefaults, ...timestamp } }),
    ...(handshake !== undefined && { handshake: visible }),
  };
}

/** Returns the parts of an object, and of the objects in it, by their paths. */
const listParts = (fields: Fields): Fields =>
  Object.fromEntries(
    Object.keys(fields).flatMap((name): [string, unknown][] => {
      const value = fields[name];
      if (!isObject(value)) return [[name, value]];
      return Object.entries(readObject(fields, name)).map(([inner, part]) => [`${name}.${inner}`, part]);
    }),
  );
