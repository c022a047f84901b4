// npm run trial:image: builds the image with buildah, and runs it with crun as compose.yaml and the pod of
// deploy/kubernetes/sqlite.yaml say. It needs Linux, root, buildah, crun, debootstrap and Debian's packages.
import { deepEqual, equal, match, notEqual } from "node:assert/strict";
import { spawnSync } from "node:child_process";
import { chmodSync, chownSync, mkdtempSync, readFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { setTimeout as pause } from "node:timers/promises";
import { parseEnv } from "node:util";
import { parse, parseAllDocuments } from "yaml";
import { home } from "../launch/modernNode.js";
import type { Image } from "./image/build.ts";
import { buildImage } from "./image/build.ts";
import { fillIn, type Environment } from "./image/compose.ts";
import type { Container } from "./image/container.ts";
import { addressOf, closeNetwork, openNetwork, runOnce, start } from "./image/container.ts";

/** crun refuses a machine that mounts both versions of control groups, so it gets a view with one. */
const oneVersion = 'umount -R /sys/fs/cgroup; mount -t cgroup2 none /sys/fs/cgroup; exec "$@"';

const readYaml = (name: string): string => readFileSync(join(home, name), "utf8");
const say = (text: string): unknown => process.stdout.write(`${text}\n`);
const server = `http://${addressOf("waypost")}:8080`;

async function until(what: string, isSo: () => boolean | Promise<boolean>): Promise<number> {
  const since = performance.now();
  while (!(await isSo())) {
    if (performance.now() - since > 60_000) throw new Error(`${what}: not within 60 s`);
    await pause(200);
  }
  return Math.round((performance.now() - since) / 100) / 10;
}

const statusOf = (path: string, port = 8080): Promise<number> =>
  fetch(`http://${addressOf("waypost")}:${port}${path}`).then(
    ({ status }) => status,
    () => 0,
  );

async function publish(destination: string, token: string, delay = "0s"): Promise<{ warnings?: string[] }> {
  const headers = { authorization: `Bearer ${token}`, "svc-delay": delay };
  const response = await fetch(`${server}/v2/publish/${destination}`, {
    method: "POST",
    headers,
    body: "tea",
  });
  equal(response.status, 200);
  return (await response.json()) as { warnings?: string[] };
}

/** Makes a volume. With a group, it belongs to that group, as Kubernetes makes it. */
function makeVolume(user: number, group?: number): string {
  const folder = mkdtempSync(join(tmpdir(), "waypost-volume-"));
  chownSync(folder, group === undefined ? user : 0, group ?? user);
  chmodSync(folder, group === undefined ? 0o700 : 0o2775);
  return folder;
}

async function tryCompose(image: Image): Promise<void> {
  const { services } = parse(readYaml("compose.yaml")) as {
    services: Record<
      "waypost" | "app",
      { environment: Environment; command?: string[]; healthcheck: { test: string[] } }
    >;
  };
  const file = parseEnv(runOnce("waypost", { image, args: ["credentials", "--new"] }));
  const token = file["QSTASH_TOKEN"] ?? "";
  const environment = fillIn(services.waypost.environment, file);
  const options = { image, args: ["start"], environment, data: makeVolume(Number(image.user.split(":")[0])) };
  const [, ...health] = services.waypost.healthcheck.test;
  const isHealthy = (one: Container) => (): boolean => one.execute(...health).code === 0;
  const credentials = (one: Container): string => one.execute(...image.entrypoint, "credentials").out;

  let waypost = start("waypost", options);
  say(`compose: healthy after ${await until("healthy", isHealthy(waypost))} s`);
  match(credentials(waypost), new RegExp(`^QSTASH_TOKEN="?${token}"?$`, "m"));
  say("compose: has the credentials of .env");
  const args = services.app.command ?? [];
  const app = start("app", { image, args, environment: fillIn(services.app.environment, file) });
  await until("the receiver", () => app.output().includes("listening on"));
  await publish("http://app:4000/first", token);
  await until("a delivery", () => /POST \/first[^]*valid, for http:\/\/app:4000\/first/.test(app.output()));
  say("compose: calls the receiver by its name, which finds the signature valid");
  await publish("http://waypost:8080/x", token);
  await pause(2_000);
  match(
    String((await publish("http://waypost:8080/x", token)).warnings),
    /^destination: waypost is not public/,
  );
  say("compose: refuses a name that is not allowed, and warns");

  await publish("http://app:4000/stopped", token, "10s");
  equal(await waypost.end("TERM"), 0);
  waypost = start("waypost", options);
  await until("healthy after a stop", isHealthy(waypost));
  await publish("http://app:4000/killed", token, "10s");
  notEqual(await waypost.end("KILL"), 0);
  waypost = start("waypost", options);
  await until("healthy after a kill", isHealthy(waypost));
  for (const path of ["stopped", "killed"])
    await until(`the message before it was ${path}`, () => app.output().includes(`POST /${path}`));
  say("compose: sends what it accepted before a stop and before a kill -9");
  const write = `try { fs.writeFileSync("/app/x", "") } catch (error) { console.log(error.code) }`;
  equal(waypost.execute("node", "--eval", write).out.trim(), "EROFS");
  await app.end("TERM");
  equal(await waypost.end("TERM"), 0);
}

type Probe = { httpGet: { path: string } };
type Pod = {
  securityContext: { runAsUser: number; runAsGroup: number; fsGroup: number };
  containers: {
    env: { name: string; value: string }[];
    startupProbe: Probe;
    livenessProbe: Probe;
    readinessProbe: Probe;
  }[];
};

async function tryKubernetes(image: Image): Promise<void> {
  const manifests = parseAllDocuments(readYaml("deploy/kubernetes/sqlite.yaml"));
  const [pod] = manifests.flatMap(
    (one) => (one.toJS() as { spec: { template?: { spec: Pod } } }).spec.template?.spec ?? [],
  );
  const container = pod?.containers[0];
  if (!pod || !container) throw new Error("sqlite.yaml: has no pod");
  const { runAsUser, runAsGroup, fsGroup } = pod.securityContext;
  deepEqual(image.user, `${runAsUser}:${runAsGroup}`);
  const environment = Object.fromEntries(container.env.map(({ name, value }) => [name, value]));
  const data = makeVolume(runAsUser, fsGroup);
  const options = { image, args: ["start"], environment, data };
  const { startupProbe, livenessProbe, readinessProbe } = container;
  const isStarted = async (): Promise<boolean> => (await statusOf(startupProbe.httpGet.path)) === 200;
  const credentials = (one: Container): string => one.execute(...image.entrypoint, "credentials").out;

  let waypost = start("waypost", options);
  say(`kubernetes: the startup probe succeeds after ${await until("startup", isStarted)} s`);
  for (const { httpGet } of [livenessProbe, readinessProbe]) equal(await statusOf(httpGet.path), 200);
  equal(await statusOf("/metrics", Number(environment["WAYPOST_METRICS_PORT"])), 200);
  say("kubernetes: is alive and ready, and serves metrics");
  const made = credentials(waypost);
  match(made, /^QSTASH_TOKEN=/m);
  equal(await waypost.end("TERM"), 0);
  waypost = start("waypost", options);
  await until("startup", isStarted);
  equal(credentials(waypost), made);
  say("kubernetes: without a secret, the first start makes credentials, and they stay");
  equal(await waypost.end("TERM"), 0);
}

async function main(): Promise<void> {
  const image = JSON.parse(process.env["WAYPOST_TRIAL_IMAGE"] ?? "null") as Image | null;
  if (image === null) {
    const env = { ...process.env, WAYPOST_TRIAL_IMAGE: JSON.stringify(buildImage()) };
    say("the image is built");
    const inside = ["--mount", "sh", "-c", oneVersion, "sh", process.execPath, import.meta.filename];
    process.exitCode = spawnSync("unshare", inside, { env, stdio: "inherit" }).status ?? 1;
    return;
  }
  openNetwork();
  try {
    await tryCompose(image);
    await tryKubernetes(image);
  } finally {
    closeNetwork();
  }
}

await main();
