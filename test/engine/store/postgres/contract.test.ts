import { describeStore } from "../contract/index.ts";
import { languageDatabase } from "./postgresDatabase.ts";

describeStore("PostgreSQL", languageDatabase(), { long: "others" });
