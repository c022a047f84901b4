import { spawnSync } from "node:child_process";
import { writeFileSync } from "node:fs";
import { join } from "node:path";
import { expect, test } from "vitest";
import { readConfig } from "../../src/settings/config.ts";
import { runWaypost, startWaypost, temporaryFolder } from "../server/waypost.ts";

function writeFile(name: string, content: string): string {
  const path = join(temporaryFolder(), name);
  writeFileSync(path, content);
  return path;
}

test("waypost config prints every setting with its value and its place, and hides secrets", async () => {
  const file = writeFile(
    "waypost.json",
    `{ "port": 9001, "grace": "5s", "fastPath": false, "corsOrigin": ["*"] }`,
  );
  const password = writeFile("password", "a secret of the operator\n");
  const environment = {
    WAYPOST_CONFIG: file,
    WAYPOST_GRACE: "7s",
    WAYPOST_OPERATOR_PASSWORD_FILE: password,
    WAYPOST_DATABASE_URL: "postgres://waypost:hunter2@db/waypost",
  };
  const { code, out, err } = await runWaypost(["config", "--log-level", "warn"], environment).ended;
  expect({ code, err }).toEqual({ code: 0, err: "" });
  const line = (name: string) => new RegExp(`^${name} +(.*?) {2,}(.*)$`, "m").exec(out)?.slice(1);
  expect(line("port")).toEqual(["9001", `${file}: port`]);
  expect(line("grace")).toEqual(["7s", "WAYPOST_GRACE"]);
  expect(line("fastPath")).toEqual(["off", `${file}: fastPath`]);
  expect(line("corsOrigin")).toEqual(["*", `${file}: corsOrigin`]);
  expect(line("logLevel")).toEqual(["warn", "--log-level"]);
  expect(line("host")).toEqual(["127.0.0.1", "default"]);
  expect(line("operatorPassword")).toEqual(["(hidden)", "WAYPOST_OPERATOR_PASSWORD_FILE"]);
  expect(line("databaseUrl")).toEqual(["(hidden)", "WAYPOST_DATABASE_URL"]);
  for (const secret of ["hunter2", "a secret"]) expect(out).not.toContain(secret);
  const json = await runWaypost(["config", "--json"], environment).ended;
  expect(JSON.parse(json.out)).toContainEqual({ name: "port", value: "9001", from: `${file}: port` });
});

test.each([
  ["WAYPOST_PORT", "tcp://10.96.0.7:8080"],
  ["WAYPOST_METRICS_PORT", "tcp://10.96.0.8:9464"],
  ["WAYPOST_SERVICE_HOST", "10.96.0.7"],
  ["WAYPOST_SERVICE_PORT", "8080"],
  ["WAYPOST_SERVICE_PORT_HTTP", "8080"],
  ["WAYPOST_METRICS_SERVICE_HOST", "10.96.0.8"],
])("the variable %s of a Kubernetes service is refused with its cause", (name, value) => {
  const refused = new RegExp(`^${name}: is set by Kubernetes .*; set enableServiceLinks: false in the pod$`);
  expect(() => readConfig({}, { WAYPOST_PORT_8080_TCP: value, [name]: value })).toThrow(refused);
});

test("origins of pages may be those of extensions, as the refusal of their requests advises", () => {
  const origins = [
    "https://app.example.com",
    "http://127.0.0.1:3000",
    "chrome-extension://aapbdbdomjkkjkaonfhkkikfgjllcleb",
    "moz-extension://2c127fa4-62c7-7e4f-90e5-472b45eecfdc",
    "vscode-webview://1kq5a7dmcg1ep1v3v2n1hq3l4o8",
  ];
  expect(readConfig({ corsOrigin: origins.join(",") }, {}).corsOrigin).toEqual(origins);
});

test("a development server that any page may use warns of it at its start", async () => {
  const warning = "every web page that a browser of this machine opens can publish";
  for (const [command, origin, isWarned] of [
    ["dev", "*", true],
    ["dev", "https://app.example.com", false],
    ["start", "*", false],
  ] as const) {
    const data = join(temporaryFolder(), "data");
    const server = await startWaypost([command, "--port", "0", "--data", data, "--cors-origin", origin]);
    server.kill("SIGTERM");
    expect((await server.ended).err.includes(warning), `${command} ${origin}`).toBe(isWarned);
  }
});

test("a server uses the configuration file and the files of secrets", async () => {
  const data = temporaryFolder();
  const file = writeFile("waypost.json", JSON.stringify({ port: 0, data, logLevel: "debug" }));
  const password = writeFile("password", "a secret of the operator\n");
  const environment = { WAYPOST_OPERATOR_PASSWORD_FILE: password };
  const server = await startWaypost(["start", "--config", file], environment);
  const authorization = `Basic ${Buffer.from("operator:a secret of the operator").toString("base64")}`;
  const { status } = await fetch(`${server.url}/v2/admin/accounts`, { headers: { authorization } });
  expect(status).toBe(200);
  const credentials = await runWaypost(["credentials", "--config", file]).ended;
  expect(credentials.out).toContain(`WAYPOST_URL="${server.url}"`);
  server.kill("SIGTERM");
  expect((await server.ended).err).toContain('"level":20');
});

test.each([
  ["{", "is not valid JSON"],
  ["[]", 'is not a JSON object; write it as {"port": 8080}'],
  [`{ "prot": 1 }`, '"prot" is not a setting; did you mean port?'],
  [`{ "somethingElse": 1 }`, '"somethingElse" is not a setting; "waypost config" lists all names'],
  [
    `{ "port": null }`,
    "port: must be a string, a number, true, false or a list of strings; change the value",
  ],
  [`{ "port": 70000 }`, "port: must be a whole number from 0 to 65535"],
])("a configuration file %s is refused with a reason", async (content, reason) => {
  const file = writeFile("waypost.json", content);
  const { code, err } = await runWaypost(["config", "--config", file]).ended;
  expect({ code, err }).toEqual({ code: 2, err: expect.stringContaining(`waypost: ${file}: ${reason}`) });
});

test("a missing file, or a secret that is set twice, is refused with what to do", async () => {
  const missing = join(temporaryFolder(), "none");
  const config = await runWaypost(["config", "--config", missing]).ended;
  expect(config).toMatchObject({
    code: 2,
    err: expect.stringMatching(/cannot be read .*; name a file that/),
  });
  const file = { WAYPOST_OPERATOR_PASSWORD_FILE: missing };
  const secret = await runWaypost(["config"], file).ended;
  expect(secret).toMatchObject({
    code: 2,
    err: expect.stringContaining(`WAYPOST_OPERATOR_PASSWORD_FILE: ${missing} cannot be read`),
  });
  const both = await runWaypost(["config"], { ...file, WAYPOST_OPERATOR_PASSWORD: "x".repeat(16) }).ended;
  expect(both).toMatchObject({
    code: 2,
    err: expect.stringContaining("WAYPOST_OPERATOR_PASSWORD_FILE: both are set; remove one"),
  });
});

test("an empty file of a secret is refused, so that no server starts on another store", async () => {
  const empty = writeFile("empty", "\n");
  const { code, err } = await runWaypost(["config"], { WAYPOST_DATABASE_URL_FILE: empty }).ended;
  expect({ code, err }).toEqual({
    code: 2,
    err: expect.stringContaining(`WAYPOST_DATABASE_URL_FILE: ${empty} is empty; write the value into it`),
  });
});

const hasScript = spawnSync("script", ["--version"]).status === 0;

test.skipIf(!hasScript)("the first start prints credentials on a terminal", async () => {
  const data = temporaryFolder();
  const main = join(import.meta.dirname, "../../src/server/cli/main.ts");
  const serving = `${process.execPath} ${main} start --port 0 --data ${data}`;
  const script = `${serving} & until grep -q "running at" "$0"; do sleep 0.1; done; kill %1; wait`;
  const output = join(data, "terminal");
  writeFileSync(output, "");
  const { status } = spawnSync("script", ["-qfec", `bash -c '${script}' ${output}`, output], {
    env: { PATH: process.env.PATH, NODE_COMPILE_CACHE: process.env["NODE_COMPILE_CACHE"] },
    stdio: "ignore",
  });
  expect(status).toBe(0);
  const { out } = await runWaypost(["credentials", "--data", data]).ended;
  const [credentials = ""] = /WAYPOST_TOKEN=".*"/.exec(out) ?? [];
  expect(spawnSync("cat", [output], { encoding: "utf8" }).stdout).toContain(credentials);
});
