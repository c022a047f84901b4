import { existsSync } from "node:fs";
import { Server } from "node:net";

// Preloaded into a server by `--import`: the socket for commands, the last thing that a start opens, opens
// when the file LATE_SOCKET exists. Until then the server has its ports open, and has not ended its start.

const { LATE_SOCKET = "" } = process.env;
const listen = Reflect.get(Server.prototype, "listen") as (...args: unknown[]) => Server;

Object.assign(Server.prototype, {
  listen(this: Server, ...args: unknown[]): Server {
    if (!String(args[0]).endsWith("waypost.sock")) return listen.apply(this, args);
    const timer = setInterval(() => {
      if (!existsSync(LATE_SOCKET)) return;
      clearInterval(timer);
      listen.apply(this, args);
    }, 10);
    return this;
  },
});
