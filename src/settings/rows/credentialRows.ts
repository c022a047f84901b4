import { ownerToken, signingKey } from "./settingValues.ts";

/**
 * The credentials of the first account. A new store takes them, and every later start checks that they still
 * belong to the account.
 */
export const credentialRows = {
  ownerToken: {
    takes: ownerToken,
    default: "",
    value: "<token>",
    example: "eyJVc2VySUQi…",
    help:
      "token of the first account; set it with both signing keys before the first start, " +
      "as printed by waypost credentials --new",
  },
  signingKey: {
    takes: signingKey,
    default: "",
    value: "<key>",
    example: "sig_…",
    help: "key that signs the deliveries of the first account",
  },
  nextSigningKey: {
    takes: signingKey,
    default: "",
    value: "<key>",
    example: "sig_…",
    help: "key of the first account that becomes the current one at a rotation",
  },
} as const;
