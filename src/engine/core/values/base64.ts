import type { Bytes } from "./basics.ts";

/** Returns bytes as text in base64, without copying them first. */
export const base64 = (bytes: Bytes): string =>
  Buffer.from(bytes.buffer, bytes.byteOffset, bytes.byteLength).toString("base64");
