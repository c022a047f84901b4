import type { Millis } from "./basics.ts";

// Units of time, so that a constant reads naturally: `15 * minute`, `7 * day`.

/** One second, in milliseconds. */
export const second: Millis = 1000;
/** One minute, in milliseconds. */
export const minute: Millis = 60 * second;
/** One hour, in milliseconds. */
export const hour: Millis = 60 * minute;
/** One day of 24 hours, in milliseconds. */
export const day: Millis = 24 * hour;
