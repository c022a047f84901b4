// Records docs/reference/examples.json: a request and its response for each operation of the API.
import { writeFileSync } from "node:fs";
import { examplesFile, formatExamples, recordExamples } from "./record.ts";

writeFileSync(examplesFile, formatExamples(await recordExamples()));
