/** The registration of a service at a Restate server. */
import { request } from "undici";
import { pause } from "./server.ts";

const startLimit = 60_000;

/** Registers a service at a Restate server, and waits until the server is ready. Throws if it refuses. */
export async function registerRestate(uri: string, adminPort: number): Promise<void> {
  const deadline = performance.now() + startLimit;
  for (;;) {
    const problem = await tryRegister(uri, adminPort);
    if (problem === null) return;
    if (performance.now() > deadline) throw new Error(`The service could not be registered: ${problem}`);
    await pause(200);
  }
}

/** Returns why the service could not be registered, or null. */
async function tryRegister(uri: string, adminPort: number): Promise<string | null> {
  try {
    const response = await request(`http://127.0.0.1:${adminPort}/deployments`, {
      method: "POST",
      headers: { "content-type": "application/json" },
      body: JSON.stringify({ uri }),
    });
    const text = await response.body.text();
    return response.statusCode < 300 ? null : text;
  } catch (error) {
    return String(error);
  }
}
