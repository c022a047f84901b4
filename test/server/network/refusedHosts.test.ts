import { expect, test } from "vitest";
import { developmentToken, runWaypost, startWaypost, temporaryFolder } from "../waypost.ts";

// A real server tells at each place that it will not call a host, and which setting would allow it.

test("the response, the overview, the log and the doctor show a refused host and its setting", async () => {
  const data = temporaryFolder();
  const environment = { WAYPOST_EGRESS_ALLOW: "192.168.77.0/24,lobe" };
  const server = await startWaypost(
    ["dev", "--port", "0", "--data", data, "--log-format", "json"],
    environment,
  );
  const headers = { authorization: `Bearer ${developmentToken}` };
  const ask = (path: string, method = "POST", more = {}) =>
    fetch(`${server.url}${path}`, { method, headers: { ...headers, ...more } });
  const warning = "destination: 10.0.0.7 is not public and refused: allow with WAYPOST_EGRESS_ALLOW=10.0.0.7";
  for (let round = 0; round < 3; round++) {
    const published = await ask("/v2/publish/http://10.0.0.7:3210/secret", "POST", { "Svc-Delay": "1h" });
    expect(published.status).toBe(200);
    expect(published.headers.get("waypost-warning")).toBe(warning);
    expect(await published.json()).toMatchObject({ warnings: [warning] });
  }
  const allowed = await ask("/v2/publish/http://127.0.0.1:1/", "POST", { "Svc-Delay": "1h" });
  expect(await allowed.json()).not.toHaveProperty("warnings");
  expect(await (await ask("/v2/overview", "GET")).json()).toMatchObject({
    conditions: [{ kind: "host.refused", level: "problem", subject: "10.0.0.7:3210" }],
  });
  const { out } = await runWaypost(["overview"], { WAYPOST_URL: server.url, WAYPOST_TOKEN: developmentToken })
    .ended;
  expect(out).toContain("Nothing is sent to 10.0.0.7:3210: its address is not public");

  // The settings of the server, not those of the command.
  const { out: explained } = await runWaypost(["doctor", "egress", "http://10.0.0.7/", "--data", data]).ended;
  const setting = "WAYPOST_EGRESS_ALLOW=192.168.77.0/24,lobe,127.0.0.0/8,::1/128,10.0.0.7";
  expect(explained).toContain(`fix: ${setting}`);

  // An attempt that is refused is explained as well.
  await ask("/v2/publish/http://[fd12::7]/");
  await expect
    .poll(
      async () =>
        (await runWaypost(["overview"], { WAYPOST_URL: server.url, WAYPOST_TOKEN: developmentToken }).ended)
          .out,
    )
    .toContain("address fd12::7 is not public");
  server.kill("SIGTERM");
  const { err } = await server.ended;
  const lines = err
    .split("\n")
    .filter((line) => line.includes("deliveries to this host are refused"))
    .map((line) => JSON.parse(line) as object);
  expect(lines.slice(0, 2)).toMatchObject([
    { level: 40, host: "10.0.0.7", setting },
    { level: 40, host: "[fd12::7]", setting: expect.stringMatching(/,fd12::7$/) },
  ]);
  expect(err).not.toContain("secret");
});
