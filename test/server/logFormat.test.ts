import { expect, test } from "vitest";
import { startWaypost, temporaryFolder } from "./waypost.ts";

const readMessage = (line: string): string => (JSON.parse(line) as { msg: string }).msg;

test("a start away from a terminal prints only JSON, unless the settings say text", async () => {
  const flags = ["--port", "0", "--data", temporaryFolder()];
  const server = await startWaypost(["start", ...flags]);
  server.kill("SIGTERM");
  const { out, err } = await server.ended;
  const messages = `${out}${err}`.trimEnd().split("\n").map(readMessage);
  expect(messages).toContain(`running at ${server.url}`);
  expect(messages).toContain("started");
  const text = await startWaypost(["start", "--log-format", "text", ...flags]);
  expect(text.out()).toMatch(/^running at http:/m);
  text.kill("SIGTERM");
  expect((await text.ended).err).toMatch(/INFO.*started/);
  const dev = await startWaypost(["dev", "--log-format", "json", "--port", "0"]);
  expect(dev.out().trimEnd().split("\n").map(readMessage)).toContain(`running at ${dev.url}`);
});
