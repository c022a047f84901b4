import { hash } from "node:crypto";
import type { Hash } from "../../engine/core/model/redaction.ts";

/** Returns the text that replaces a redacted value: its SHA-256 in hex. */
export const sha256: Hash = (value) => hash("sha256", value, "hex");
