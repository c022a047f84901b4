import { existsSync, writeFileSync } from "node:fs";
import { createServer as createSecureServer } from "node:https";
import type { AddressInfo } from "node:net";
import { join } from "node:path";
import type { TLSSocket } from "node:tls";
import { expect, onTestFinished, test, vi } from "vitest";
import { readConfig } from "../../../src/settings/config.ts";
import { openEgress } from "../../../src/settings/egressSettings.ts";
import { authority, clientCertificate, serverCertificate } from "../../engine/delivery/http/authority.ts";
import { startForwardProxy } from "../../engine/delivery/http/forwardProxy.ts";
import { developmentToken, runWaypost, startWaypost, temporaryFolder } from "../waypost.ts";

/** Writes files into a new folder, and returns their paths by name. */
function writeFiles<Name extends string>(files: Readonly<Record<Name, string>>): Record<Name, string> {
  const folder = temporaryFolder();
  const paths = Object.keys(files).map((name) => [name, join(folder, name)] as const);
  for (const [name, path] of paths) writeFileSync(path, files[name as Name]);
  return Object.fromEntries(paths) as Record<Name, string>;
}

/** Starts a destination that requires a client certificate. `calls` has its clients and their paths. */
async function startStrictDestination() {
  const calls: unknown[] = [];
  const server = createSecureServer(
    { ...serverCertificate, ca: [authority], requestCert: true },
    (incoming, response) => {
      calls.push([(incoming.socket as TLSSocket).getPeerCertificate().subject.CN, incoming.url]);
      response.end();
    },
  );
  server.on("tlsClientError", () => undefined);
  await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
  onTestFinished(() => {
    server.close();
    server.closeAllConnections();
  });
  return { port: (server.address() as AddressInfo).port, calls };
}

test("a server delivers through a proxy, with its own authority and a client certificate", async () => {
  const { port, calls } = await startStrictDestination();
  const proxy = await startForwardProxy({ to: port, credentials: "queue:hunter2" });
  const files = writeFiles({
    "ca.pem": `# our own\n${authority}\n`,
    "client.pem": clientCertificate.certificate,
    "client.key": clientCertificate.key,
    "clients.json": `{"Shop.test": {"certificate": "client.pem", "key": "client.key"}}`,
    proxy: `http://queue:hunter2@127.0.0.1:${proxy.port}\n`,
  });
  const environment = {
    WAYPOST_EGRESS_PROXY_FILE: files.proxy,
    WAYPOST_EGRESS_CA: files["ca.pem"],
    WAYPOST_EGRESS_CLIENT_CERTIFICATES: files["clients.json"],
  };
  const data = join(temporaryFolder(), "data");
  const server = await startWaypost(
    ["dev", "--port", "0", "--data", data, "--log-format", "json"],
    environment,
  );
  const headers = { authorization: `Bearer ${developmentToken}` };
  const publish = (url: string) => fetch(`${server.url}/v2/publish/${url}`, { method: "POST", headers });
  expect((await publish("https://shop.test/orders")).status).toBe(200);
  await vi.waitFor(() => expect(calls).toEqual([["client", "/orders"]]), { timeout: 120_000 });
  expect(proxy.tunnels).toEqual(["shop.test:443"]);

  const config = await runWaypost(["config"], environment).ended;
  expect(config.out).toMatch(/^egressProxy +\(hidden\) +WAYPOST_EGRESS_PROXY_FILE$/m);
  const egress = await runWaypost(["doctor", "egress", "https://shop.test/"], environment).ended;
  expect(egress.out).toMatch(/warning +addresses +deliveries go through a proxy, which resolves names/);
  expect(egress.out).toMatch(
    new RegExp(
      `ok +connection +connected through the proxy 127.0.0.1:${proxy.port} in .* a valid certificate`,
    ),
  );
  const refused = await runWaypost(["doctor", "egress", "https://10.0.0.7/"], environment).ended;
  expect(refused.out).toContain("10.0.0.7 is not public, so deliveries to it are refused");

  server.kill("SIGTERM");
  const { err } = await server.ended;
  expect(err).toContain(`"proxy":"127.0.0.1:${proxy.port}","msg":"deliveries go through a proxy`);
  for (const text of [config.out, egress.out, err]) expect(text).not.toContain("hunter2");
});

/** Reads the settings in files of these contents, as a server does when it starts. */
function openWith(settings: Readonly<Record<string, string>>) {
  const files = Object.entries(settings).map(([name, content]) => {
    const isPlain = content === "missing" || name === "WAYPOST_EGRESS_PROXY";
    return [name, isPlain ? content : writeFiles({ file: content }).file];
  });
  return openEgress(readConfig({}, Object.fromEntries(files)));
}

const clientsIn = (content: string) => ({ WAYPOST_EGRESS_CLIENT_CERTIFICATES: content });
test.each<[problem: string, settings: Record<string, string>]>([
  ["WAYPOST_EGRESS_CA: missing cannot be read", { WAYPOST_EGRESS_CA: "missing" }],
  ["has no certificate; name a file with -----BEGIN CERTIFICATE-----", { WAYPOST_EGRESS_CA: "nothing here" }],
  ["is damaged; write the file again", { WAYPOST_EGRESS_CA: authority.replace("MII", "MIJ") }],
  ["is not an object of hosts; write it as {", clientsIn("[")],
  ["is not an object of hosts; write it as {", clientsIn(`{"shop.test": {"certificate": "a.pem"}}`)],
  [
    '"shop.test:443": is not a host; use a name',
    clientsIn(`{"shop.test:443": {"certificate": "a", "key": "b"}}`),
  ],
  ["none.pem cannot be read", clientsIn(`{"shop.test": {"certificate": "none.pem", "key": "b"}}`)],
  [
    "must be the URL of a proxy without a path",
    { WAYPOST_EGRESS_PROXY: "https://user:hunter2@proxy.example" },
  ],
  [
    "must be the URL of a proxy without a path",
    { WAYPOST_EGRESS_PROXY: "http://user:hunter2@proxy.example/x" },
  ],
])("%s: settings are refused with what to do", (problem, settings) => {
  expect(() => openWith(settings)).toThrow(problem);
  expect(() => openWith(settings)).not.toThrow("hunter2");
});

test("with a key that does not belong to its certificate, a server creates nothing", async () => {
  const files = writeFiles({
    "client.pem": clientCertificate.certificate,
    "other.key": serverCertificate.key,
    "clients.json": `{"shop.test": {"certificate": "client.pem", "key": "other.key"}}`,
  });
  const environment = { WAYPOST_EGRESS_CLIENT_CERTIFICATES: files["clients.json"] };
  const data = join(temporaryFolder(), "data");
  const { code, err } = await runWaypost(["dev", "--port", "0", "--data", data], environment).ended;
  expect({ code, err }).toEqual({
    code: 2,
    err: expect.stringContaining(`other.key is not the key of ${files["client.pem"]}; name the key of`),
  });
  expect(existsSync(data)).toBe(false);
});
