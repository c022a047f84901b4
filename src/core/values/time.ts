import type { Millis } from "./basics.ts";

// Units of time in milliseconds, so that a constant reads naturally: `15 * minute`, `7 * day`.
export const second: Millis = 1000;
export const minute: Millis = 60 * second;
export const hour: Millis = 60 * minute;
export const day: Millis = 24 * hour;
