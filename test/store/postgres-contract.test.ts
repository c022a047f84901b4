import { describeStore } from "./contract.ts";
import { languageDatabase } from "./postgresDatabase.ts";

describeStore("PostgreSQL", languageDatabase());
