import { execFileSync, spawnSync } from "node:child_process";
import { chmodSync, copyFileSync, cpSync, existsSync, mkdirSync, symlinkSync, writeFileSync } from "node:fs";
import { homedir } from "node:os";
import { dirname, join } from "node:path";
import { home } from "../../launch/modernNode.js";

const cache = join(process.env["XDG_CACHE_HOME"] || join(homedir(), ".cache"), "waypost-image");
const storage = ["--root", join(cache, "storage"), "--runroot", join(cache, "run")];

/** Runs a program and returns its output. Its errors go to the terminal. */
export const run = (program: string, args: readonly string[]): string =>
  execFileSync(program, args, {
    cwd: home,
    encoding: "utf8",
    maxBuffer: 2 ** 26,
    stdio: ["ignore", "pipe", "inherit"],
  }).trim();

const buildah = (...args: readonly string[]): string => run("buildah", [...storage, ...args]);

/** The file tree of an image, and how it starts. */
export type Image = {
  root: string;
  user: string;
  environment: readonly string[];
  entrypoint: readonly string[];
};

/**
 * Builds the image of the Dockerfile, and returns it with its mounted file tree. No image is fetched: the
 * base image is made from packages of Debian and the Node.js of this project.
 */
export function buildImage(): Image {
  const base = /^FROM (\S+)$/m.exec(run("cat", ["Dockerfile"]))?.[1] ?? "";
  const name = `docker.io/library/${base}`;
  if (spawnSync("buildah", [...storage, "inspect", "--type", "image", name]).status !== 0) makeBase(name);
  const commit = run("git", ["rev-parse", "HEAD"]);
  buildah(
    ...["bud", "--quiet", "--pull-never", "--network", "host", "--isolation", "chroot", "--format", "docker"],
    ...["--build-arg", `SOURCE_COMMIT=${commit}`, "--tag", "waypost", "."],
  );
  const { Docker } = JSON.parse(buildah("inspect", "--type", "image", "waypost")) as {
    Docker: { config: { User: string; Env: string[]; Entrypoint: string[] } };
  };
  const { User: user, Env: environment, Entrypoint: entrypoint } = Docker.config;
  const root = buildah("mount", buildah("from", "--pull-never", "waypost"));
  return { root, user, environment, entrypoint };
}

/** Makes the base image under the name that the Dockerfile has. */
function makeBase(name: string): void {
  const root = join(cache, "base");
  mkdirSync(root, { recursive: true });
  run("debootstrap", ["--variant=minbase", "bookworm", root]);
  const node = join(root, "usr/local/bin/node");
  copyFileSync(process.execPath, node);
  chmodSync(node, 0o755);
  const npm = join(dirname(run("npm", ["root", "--global"])), "node_modules/npm");
  cpSync(npm, join(root, "usr/local/lib/node_modules/npm"), { recursive: true });
  for (const command of ["npm", "npx"]) {
    const link = join(root, "usr/local/bin", command);
    if (!existsSync(link)) symlinkSync(`../lib/node_modules/npm/bin/${command}-cli.js`, link);
  }
  const authorities = process.env["NODE_EXTRA_CA_CERTS"];
  if (authorities !== undefined) {
    copyFileSync(authorities, join(root, "usr/local/etc/authorities.pem"));
    writeFileSync(join(root, "usr/local/etc/npmrc"), "cafile=/usr/local/etc/authorities.pem\n");
  }
  const container = buildah("from", "scratch");
  buildah("copy", "--quiet", container, root, "/");
  buildah("config", "--env", "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", container);
  buildah("commit", "--quiet", container, name);
  buildah("rm", container);
}
