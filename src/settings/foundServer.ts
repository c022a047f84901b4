import type { Millis } from "../engine/core/values/basics.ts";
import { second } from "../engine/core/values/time.ts";

/** The server of a data folder: its URL, `silent` if it is there and does not respond, or `none`. */
export type FoundServer = { url: string } | "silent" | "none";

/** For how long a command waits for a sign of life of the server. */
export const longestSilence: Millis = 5 * second;

/** Describes a server that is silent, after its name. */
export const silence =
  `has sent nothing for ${longestSilence / second} s, so its process is suspended, overloaded ` +
  "or waits for its disk";
