import { join } from "node:path";
import { startServer } from "../recording/server.ts";
import { Session } from "../recording/session.ts";
import type { Examples } from "./recorder.ts";
import { Recorder } from "./recorder.ts";
import { groups } from "./script/index.ts";

/** The file of the examples in the repository. */
export const examplesFile = join(import.meta.dirname, "../../docs/reference/examples.json");

/** Records the examples against a new server of this checkout. */
export async function recordExamples(): Promise<Examples> {
  const server = await startServer(join(import.meta.dirname, "../.."), [
    "--hold",
    "--sends-from",
    "203.0.113.7",
  ]);
  const session = await Session.begin(server.url);
  const recorder = new Recorder(session);
  try {
    for (const group of groups) await group(recorder);
    return recorder.examples();
  } finally {
    session.end();
    await server.stop();
  }
}

/** Returns the text of the file. */
export const formatExamples = (examples: Examples): string => `${JSON.stringify(examples, null, 2)}\n`;
