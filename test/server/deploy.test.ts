import { spawnSync } from "node:child_process";
import { cpSync, existsSync, readdirSync, readFileSync, symlinkSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { parseEnv } from "node:util";
import { Deployment } from "kubernetes-models/apps/v1/Deployment";
import { StatefulSet } from "kubernetes-models/apps/v1/StatefulSet";
import { PodDisruptionBudget } from "kubernetes-models/policy/v1/PodDisruptionBudget";
import { Service } from "kubernetes-models/v1/Service";
import { parse, parseAllDocuments } from "yaml";
import { expect, test } from "vitest";
import { z } from "zod";
import { readConfig, serverSettingNames, toVariable } from "../../src/settings/config.ts";
import { fillIn } from "../../scripts/image/compose.ts";
import { startCommand } from "../client/startCommand.ts";
import { runWaypost, startWaypost, temporaryFolder } from "./waypost.ts";

// The files by which the server is deployed. `image.test.ts` runs what the Dockerfile describes.

const home = join(import.meta.dirname, "../..");
const readText = (name: string): string => readFileSync(join(home, name), "utf8");
const settings = serverSettingNames.map(toVariable);

test("every variable that the files set is a setting of the server", () => {
  const files = [
    ...["Dockerfile", "compose.yaml", "compose.postgres.yaml", "deploy/waypost.service"],
    ...readdirSync(join(home, "deploy/kubernetes")).map((name) => `deploy/kubernetes/${name}`),
  ];
  for (const name of files) {
    const variables = [...readText(name).matchAll(/\bWAYPOST_[A-Z_]+\b/g)].map(([variable]) => variable);
    expect(settings, name).toEqual(expect.arrayContaining(variables));
  }
});

const models = { Deployment, StatefulSet, PodDisruptionBudget, Service };
type Manifest = { kind: keyof typeof models; spec: Record<string, unknown> };

test.each(["postgres", "sqlite"])("the manifests of %s satisfy the schema of Kubernetes", (name) => {
  const documents = parseAllDocuments(readText(`deploy/kubernetes/${name}.yaml`));
  const manifests = documents.map((document) => {
    expect(document.errors).toEqual([]);
    return document.toJS() as Manifest;
  });
  for (const manifest of manifests) {
    const model = new models[manifest.kind](manifest as never);
    model.validate();
    const misspelled = { ...manifest, spec: { ...manifest.spec, replica: 1, selector: 1 } };
    expect(() => new models[manifest.kind](misspelled as never).validate()).toThrow(/selector/);
  }
  expect(manifests.map(({ kind }) => kind)).toEqual(
    name === "sqlite" ? ["Service", "StatefulSet"] : ["Service", "PodDisruptionBudget", "Deployment"],
  );
});

test("the pods of Kubernetes run as the user of the image", () => {
  const [, user] = /^USER (\d+):\1$/m.exec(readText("Dockerfile")) ?? [];
  for (const name of ["postgres", "sqlite"]) {
    const manifest = readText(`deploy/kubernetes/${name}.yaml`);
    expect(manifest).toContain(`runAsUser: ${user}`);
    expect(manifest).toContain("readOnlyRootFilesystem: true");
  }
});

// No schema of Compose comes with npm, so these are the properties of its specification that the files use.
const compose = z.strictObject({
  "x-node": z.unknown().optional(),
  services: z.record(
    z.string(),
    z.strictObject({
      build: z.strictObject({ context: z.string(), args: z.record(z.string(), z.string()) }).optional(),
      image: z.string(),
      profiles: z.array(z.string()).optional(),
      command: z.array(z.string()).optional(),
      ports: z.array(z.string().regex(/^127\.0\.0\.1:\d+:\d+$/)).optional(),
      volumes: z.array(z.string().regex(/^[a-z]+:\/\S+$/)).optional(),
      environment: z.record(z.string(), z.string()),
      extra_hosts: z.tuple([z.literal("host.docker.internal:host-gateway")]).optional(),
      depends_on: z
        .record(z.string(), z.strictObject({ condition: z.literal("service_healthy") }))
        .optional(),
      read_only: z.boolean().optional(),
      cap_drop: z.array(z.string()).optional(),
      security_opt: z.array(z.string()).optional(),
      ulimits: z.strictObject({ nofile: z.int() }).optional(),
      stop_grace_period: z.string().optional(),
      restart: z.literal("unless-stopped"),
      healthcheck: z
        .union([
          z.strictObject({ disable: z.literal(true) }),
          z.strictObject({
            test: z.array(z.string()),
            interval: z.string(),
            timeout: z.string(),
            retries: z.int(),
            start_period: z.string().optional(),
          }),
        ])
        .optional(),
    }),
  ),
  volumes: z.record(z.string(), z.null()),
});

test.each(["compose.yaml", "compose.postgres.yaml"])("%s names only what it defines", (name) => {
  const file = compose.parse(parse(readText(name), { merge: true }));
  for (const [
    service,
    { volumes = [], depends_on: needed = {}, image, read_only: isReadOnly },
  ] of Object.entries(file.services)) {
    for (const volume of volumes) expect(file.volumes, service).toHaveProperty(volume.split(":")[0] ?? "");
    for (const other of Object.keys(needed)) expect(file.services, service).toHaveProperty(other);
    if (image === "waypost") expect(isReadOnly, service).toBe(true);
  }
});

test("the services of compose.yaml verify what they receive, with credentials of one file", async () => {
  const { waypost, app } = compose.parse(parse(readText("compose.yaml"))).services;
  const made = await startCommand(["credentials", "--new"], {}).ended;
  const file = parseEnv(made.out);
  const environment = fillIn(waypost?.environment ?? {}, file);
  expect(environment).toMatchObject({ WAYPOST_EGRESS_ALLOW: "app" });
  // No name server of the test knows the name of the service.
  const rules = `${environment["WAYPOST_EGRESS_ALLOW"]},127.0.0.1`;
  const server = await startWaypost(["start", "--port", "0", "--data", join(temporaryFolder(), "data")], {
    ...environment,
    WAYPOST_EGRESS_ALLOW: rules,
  });
  const variables = fillIn(app?.environment ?? {}, file);
  const [command = "", , ...flags] = app?.command ?? [];
  const receiver = runWaypost([command, "0", ...flags], variables);
  const port = new URL(await receiver.ready).port;
  const published = await fetch(`${server.url}/v2/publish/http://127.0.0.1:${port}/order`, {
    method: "POST",
    headers: { authorization: `Bearer ${variables["QSTASH_TOKEN"]}` },
    body: "tea",
  });
  expect(published.status).toBe(200);
  await expect.poll(receiver.out).toMatch(/POST \/order[^]*valid/);
  expect(receiver.out()).not.toMatch(/invalid|not valid/);
});

test.each(["postgres", "sqlite"])("the pods of %s serve metrics, and can have credentials", (name) => {
  const container = readPod(name).containers[0];
  const values = new Map(container?.env.map((one) => [one.name, one.value]));
  const metrics = container?.ports.find((one) => one.name === "metrics");
  expect(String(metrics?.containerPort)).toBe(values.get("WAYPOST_METRICS_PORT"));
  const config = readConfig({}, Object.fromEntries(values));
  expect(config).toMatchObject({ egressAllow: ["app", "app.default.svc.cluster.local"] });
  expect(container?.envFrom.at(-1)?.secretRef).toMatchObject({ optional: true });
});

test.each(["postgres", "sqlite"])("Kubernetes sets no variable in the pods of %s by itself", (name) => {
  expect(readPod(name)).toMatchObject({ enableServiceLinks: false });
});

test("the pods of postgres do not start without the URL of the database", () => {
  const url = readPod("postgres").containers[0]?.env.find((one) => one.name === "WAYPOST_DATABASE_URL");
  expect(url?.valueFrom).toEqual({ secretKeyRef: { name: "waypost", key: "WAYPOST_DATABASE_URL" } });
});

type Container = {
  env: { name: string; value?: string; valueFrom?: object }[];
  ports: { name: string; containerPort: number }[];
  envFrom: { secretRef: object }[];
};
type Pod = { enableServiceLinks?: boolean; containers: Container[] };

/** Returns the only pod of the manifests of a file. */
function readPod(name: string): Pod {
  const pods = parseAllDocuments(readText(`deploy/kubernetes/${name}.yaml`))
    .map((document) => document.toJS() as { spec: { template?: { spec: Pod } } })
    .flatMap(({ spec }) => spec.template?.spec ?? []);
  expect(pods).toHaveLength(1);
  return pods[0] ?? { containers: [] };
}

const hasSystemd = spawnSync("systemd-analyze", ["--version"]).status === 0;

test.skipIf(!hasSystemd)("systemd accepts the unit", () => {
  const unit = join(temporaryFolder(), "waypost.service");
  const text = readText("deploy/waypost.service");
  // The program is not installed here.
  writeFileSync(unit, text.replace(/^ExecStart=\S+/m, "ExecStart=/bin/true"));
  const verified = spawnSync("systemd-analyze", ["verify", unit], { encoding: "utf8" });
  expect({ status: verified.status, output: verified.stdout + verified.stderr }).toEqual({
    status: 0,
    output: "",
  });
  writeFileSync(unit, text.replace("DynamicUser=yes", "DynamicUsers=yes"));
  const misspelled = spawnSync("systemd-analyze", ["verify", unit], { encoding: "utf8" });
  expect(misspelled.stderr).toContain("DynamicUsers");
});

test("the build context of the image has what the build needs", { tags: "long" }, () => {
  const context = join(temporaryFolder(), "src");
  const lines = readText(".dockerignore")
    .split("\n")
    .filter((line) => line !== "" && line !== "*");
  const kept = lines.filter((line) => line.startsWith("!")).map((line) => line.slice(1));
  const left = lines.filter((line) => !line.startsWith("!")).map((line) => join(home, line));
  // The lock of a build that runs outside would keep the build of the image waiting.
  expect(left).toEqual(
    expect.arrayContaining([join(home, "site/dist.building"), join(home, "console/dist.building")]),
  );
  for (const name of kept)
    if (existsSync(join(home, name)))
      cpSync(join(home, name), join(context, name), {
        recursive: true,
        filter: (path) => !path.endsWith("node_modules") && !left.includes(path),
      });
  symlinkSync(join(home, "node_modules"), join(context, "node_modules"));
  expect(kept).toContain("package-lock.json");
  const built = join(context, "../app");
  const script = join(context, "scripts/build/main.ts");
  const { status, stderr } = spawnSync(process.execPath, [script, built], { encoding: "utf8" });
  const both = "waypost: building the web console\nwaypost: building the documentation\n";
  expect({ status, stderr }).toEqual({ status: 0, stderr: both });
  expect(existsSync(join(built, "server/site.pack"))).toBe(true);
});
