import { areas } from "./script/index.ts";
import { startServer } from "./server.ts";
import { Session } from "./session.ts";

/** Runs the whole script against the server of a checkout. Returns the lines of the recording. */
export async function record(checkout: string): Promise<{ lines: string[]; requestCount: number }> {
  const server = await startServer(checkout);
  const session = await Session.begin(server.url);
  try {
    for (const area of areas) await area(session);
    return { lines: session.lines(), requestCount: session.requestCount };
  } finally {
    session.end();
    await server.stop();
  }
}
