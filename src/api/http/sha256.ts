import { hash } from "node:crypto";
import type { Hash } from "../../core/model/redaction.ts";

/** What stands for a value that is redacted. */
export const sha256: Hash = (value) => hash("sha256", value, "hex");
