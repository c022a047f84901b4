import { createServer } from "node:http";
import type { RequestListener } from "node:http";
import type { AddressInfo } from "node:net";
import { once } from "node:events";
import { describe, expect, onTestFinished, test } from "vitest";
import { askForEgress } from "../../../src/operations/doctor/servedEgress.ts";
import { readConfig } from "../../../src/settings/config.ts";
import { freshDatabase } from "../../postgres.ts";
import { runWaypost, startDestination, startWaypost, temporaryFolder } from "../../server/waypost.ts";

const password = "operator-password";
const otherwise = "these are the settings of the command";
const reported = {
  egressAllow: ["10.0.0.0/8"],
  egressProxy: null,
  egressCa: "",
  egressClientCertificates: "",
  connectTimeout: 1_234,
};

async function serve(listener: RequestListener): Promise<string> {
  const server = createServer(listener).listen(0, "127.0.0.1");
  await once(server, "listening");
  onTestFinished(() => {
    server.closeAllConnections();
    server.close();
  });
  return `http://127.0.0.1:${(server.address() as AddressInfo).port}`;
}

const respond =
  (status: number, body: string): RequestListener =>
  (_, response) =>
    void response.writeHead(status, { "content-type": "application/json" }).end(body);

const ask = (url: string, more: NodeJS.ProcessEnv = {}) =>
  askForEgress(
    readConfig({}, { WAYPOST_PUBLIC_URL: url, WAYPOST_OPERATOR_PASSWORD: password, ...more }),
    otherwise,
  );

describe("the settings of a server", () => {
  test("are read with the operator password, under the prefix of its URL", async () => {
    const seen: unknown[] = [];
    const url = await serve((request, response) => {
      seen.push([request.method, request.url, request.headers.authorization]);
      respond(200, JSON.stringify(reported))(request, response);
    });
    const { settings, about } = await ask(`${url}/queue/`);
    expect(settings).toMatchObject(reported);
    expect(about).toMatchObject({ verdict: "ok" });
    expect(about.text).toContain(`these are the settings of the server at ${url}`);
    expect(seen).toEqual([["GET", "/queue/v2/admin/egress", `Basic ${btoa(`operator:${password}`)}`]]);
  });

  test.each([
    [401, "{}", "refuses the operator password"],
    [403, "{}", "has no operator password"],
    [404, "{}", "does not report its settings"],
    [302, "", "responds with status 302"],
    [503, "", "responds with status 503"],
    [200, "no JSON", "does not report its settings"],
    [200, '{"egressAllow":"10.0.0.0/8"}', "does not report its settings"],
    [200, JSON.stringify({ ...reported, egressCa: "/nowhere/own.pem" }), "cannot be used here"],
    [200, JSON.stringify({ ...reported, egressProxy: "proxy.example:3128" }), "uses the proxy"],
  ])("are not used after status %i with %s", async (status, body, why) => {
    const { settings, about } = await ask(await serve(respond(status, body)));
    expect(settings).toBeNull();
    expect(about).toMatchObject({ verdict: "warning" });
    expect(about.text).toContain(why);
    expect(about.text).toContain(otherwise);
    expect(JSON.stringify(about)).not.toContain(password);
  });

  test("are not asked for without a password, and nobody responds at a closed port", async () => {
    const url = await serve(() => expect.fail("a request was sent"));
    const { about } = await ask(url, { WAYPOST_OPERATOR_PASSWORD: "" });
    expect(about.text).toContain("WAYPOST_OPERATOR_PASSWORD is not set");
    expect((await ask("http://127.0.0.1:1")).about.text).toContain("does not respond");
  });

  test("keep the password of the same proxy", async () => {
    const url = await serve(respond(200, JSON.stringify({ ...reported, egressProxy: "proxy.example:3128" })));
    const WAYPOST_EGRESS_PROXY = "http://user:secret@proxy.example:3128";
    const { settings } = await ask(url, { WAYPOST_EGRESS_PROXY });
    expect(settings?.egressProxy).toEqual(readConfig({}, { WAYPOST_EGRESS_PROXY }).egressProxy);
  });
});

test("waypost doctor egress uses the settings of a server on PostgreSQL", async () => {
  const destination = await startDestination();
  const databaseUrl = await freshDatabase();
  const environment = { WAYPOST_OPERATOR_PASSWORD: password, WAYPOST_DATABASE_URL: databaseUrl };
  const { url } = await startWaypost(
    ["start", "--port", "0", "--data", temporaryFolder(), "--egress-allow", "127.0.0.0/8"],
    environment,
  );
  const run = async (args: readonly string[]) => {
    const { out } = await runWaypost(["doctor", "egress", destination.url, "--json", ...args], environment)
      .ended;
    const { verdict, findings } = JSON.parse(out) as { verdict: string; findings: { text: string }[] };
    return { verdict, settings: findings[0]?.text };
  };
  expect(await run(["--public-url", url])).toEqual({
    verdict: "ok",
    settings: `these are the settings of the server at ${url}`,
  });
  expect(await run(["--public-url", url, "--egress-allow", "10.0.0.0/8"])).toEqual({
    verdict: "problem",
    settings: "with --egress-allow, these are the settings of the command, not of a server",
  });
  expect(destination.arrivals).toEqual([]);
});
