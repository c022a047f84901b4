import { describe, expect, test } from "vitest";
import { apiPath } from "../../src/client/apiPath.ts";
import { CommandFailed } from "../../src/client/terminal/commandFailed.ts";
import { startDestination } from "../server/waypost.ts";
import { openCommands } from "./startCommand.ts";

/** Ids with which a path is that of a whole list, as it is written or after a proxy has normalized it. */
const dangerous = ["", " ", ".", ".."];

describe("a path", () => {
  test("has ids as one part each", () =>
    expect(apiPath`/v2/messages/${"a/../b?c#d e"}/send-now`).toBe(
      "/v2/messages/a%2F..%2Fb%3Fc%23d%20e/send-now",
    ));

  test.each(dangerous)("is refused with the id %j", (id) =>
    expect(() => apiPath`/v2/messages/${id}`).toThrow(/names nothing/),
  );
});

async function startProgram() {
  const server = await startDestination(() => ({ status: 200, body: "{}" }));
  const { commands, run } = openCommands(server.url);
  return { server, run, commands: commands.filter((one) => one.argumentCount > 0) };
}

describe("an id that names nothing", () => {
  test("reaches no server, whichever command it is given to", async () => {
    const { server, run, commands } = await startProgram();
    expect(commands.length).toBeGreaterThan(20);
    for (const { words, needed } of commands)
      for (const id of dangerous) {
        // A destination is not an id: the server reads it as it was written, and refuses what is not a URL. A
        // search is for any text.
        if (/^(publish|trigger)/.test(words.join(" ")) && id.startsWith(".")) continue;
        if (words[0] === "search") continue;
        // An origin is not in a path, and the server refuses what is not an origin.
        if (words[0] === "pulled" || words[0] === "connect") continue;
        const error = await run(...words, id, ...needed);
        expect(error, `${words.join(" ")} ${JSON.stringify(id)}`).toBeInstanceOf(CommandFailed);
        expect(error).toMatchObject({ exitCode: 2 });
      }
    expect(server.arrivals).toEqual([]);
  });

  test("is refused among other ids", async () => {
    const { server, run, commands } = await startProgram();
    const many = commands.filter(({ words }) =>
      /^(messages cancel|dlq (retry|delete)|runs)/.test(words.join(" ")),
    );
    expect(many.length).toBeGreaterThan(5);
    const ofOne = new Set(["get", "why", "notify"]);
    for (const { words } of many.filter(({ words: [, verb = ""] }) => !ofOne.has(verb)))
      expect(await run(...words, "a", "", "--yes"), words.join(" ")).toMatchObject({ exitCode: 2 });
    expect(await run("publish", "https://example.com", "--queue", "")).toMatchObject({ exitCode: 2 });
    for (const id of dangerous) expect(await run("runs", "notify", "a", id)).toMatchObject({ exitCode: 2 });
    expect(server.arrivals).toEqual([]);
  });
});
