import { once } from "node:events";
import { createServer } from "node:net";

// These ports are below those that a system gives to connections, and to servers that choose none (on Linux,
// 32,768 and above). So no other test gets one of them by chance before it is used.
const first = 12_000;
const count = 18_000;
/** Each process begins elsewhere. */
let next = (process.pid * 7_919) % count;

/** Returns a port of 127.0.0.1 on which nothing listens. It stays free until the caller uses it. */
export async function findFreePort(): Promise<number> {
  for (;;) {
    const port = first + (next++ % count);
    if (await isFree(port)) return port;
  }
}

async function isFree(port: number): Promise<boolean> {
  const probe = createServer();
  try {
    await once(probe.listen(port, "127.0.0.1"), "listening");
  } catch {
    return false;
  }
  await once(probe.close(), "close");
  return true;
}
