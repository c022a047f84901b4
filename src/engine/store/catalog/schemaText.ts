import { operations } from "../../../operations/stored.ts";
import { engineSchema } from "./engineSchema.ts";

/** The statements that create all tables: those of the engine, and those of the operations. */
export const schemaText = engineSchema + operations.schema;
