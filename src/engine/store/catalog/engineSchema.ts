import { readFileSync } from "node:fs";

/** The content of `schema.sql`. The build replaces this file: a bundle contains the text. */
export const engineSchema = readFileSync(new URL("./schema.sql", import.meta.url), "utf8");
