import type { Command } from "commander";
import type { ClientContext, OutputFlags } from "./api.ts";
import { printShown, withJson } from "./api.ts";
import { callApi } from "./connection.ts";
import { isObject, readLine, readLines, readObject } from "./terminal/fields.ts";
import { toSafeLine } from "./terminal/safeText.ts";
import { parseServerUrl, parseToken, removeLogin, storeLogin, toLoginPath } from "./storedLogin.ts";
import { ask, canAsk, note, print, readFirstLine } from "./terminal/terminal.ts";

/** Adds the commands `waypost login` and `waypost logout`. */
export function addLoginCommands(program: Command, { environment }: ClientContext): void {
  withJson(
    program
      .command("login")
      .description("store the address and the token of a server for the other commands")
      .argument("[url]", "address of the server, such as https://queue.example.com"),
  ).action(async (address: string | undefined, flags: OutputFlags) => {
    const url = parseServerUrl("url", address ?? (canAsk() ? await ask("Address of the server: ") : ""));
    const token = parseToken(
      "token",
      canAsk() ? await ask("Token: ", { isSecret: true }) : await readFirstLine(),
    );
    if (sendsInClear(url))
      note(`waypost: ${url} is not encrypted, so others on the network can read the token; use https://`);
    const me = await callApi(
      { url, token },
      { path: "/v2/me", needs: { one: { account: "object", credential: "object" } } },
    );
    const path = toLoginPath(environment);
    storeLogin(path, { url, token });
    const fields = isObject(me) ? me : {};
    const account = readLine(readObject(fields, "account"), "name");
    const verbs = readLines(readObject(fields, "credential"), "verbs").join(", ");
    const lines = [`logged in to ${url} as ${account} (${verbs}); stored in ${toSafeLine(path)}`];
    printShown(flags, { value: me, describe: () => lines });
    if (environment["WAYPOST_URL"] || environment["WAYPOST_TOKEN"])
      note("waypost: WAYPOST_URL and WAYPOST_TOKEN are used instead of this login, as long as they are set");
  });
  program
    .command("logout")
    .description("remove what waypost login stored")
    .action(() => {
      const path = toLoginPath(environment);
      print(removeLogin(path) ? `removed ${toSafeLine(path)}` : "there was no login");
    });
}

/** Reports whether a token would cross a network unencrypted. */
function sendsInClear(url: string): boolean {
  const { protocol, hostname } = new URL(url);
  return protocol === "http:" && !/^(localhost|127(\.\d+){3}|\[::1\])$/.test(hostname);
}
