// npm run clients:matrix: tests each published minor version of the clients, and writes the table of
// docs/guides/compatible-clients.md. It needs the npm registry, or what an earlier run has installed.
import { spawnSync } from "node:child_process";
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";

type Result = { package: string; version: string; feature: string; result: "yes" | "absent" };
type Report = {
  startTime: number;
  testResults: {
    assertionResults: { fullName: string; status: string; meta: { matrix?: Result } }[];
  }[];
};

const home = join(import.meta.dirname, "..");
const page = join(home, "docs/guides/compatible-clients.md");
const begin = "<!-- The matrix: npm run clients:matrix -->";
const end = "<!-- End of the matrix -->";

function runTests(): Report {
  const folder = mkdtempSync(join(tmpdir(), "waypost-matrix-"));
  const file = join(folder, "report.json");
  const args = [
    "vitest",
    "run",
    "--project",
    "all",
    "test/clients/published/qstashMatrix.test.ts",
    "test/clients/published/workflowMatrix.test.ts",
  ];
  const reporters = ["--reporter=dot", "--reporter=json", `--outputFile.json=${file}`];
  const env = { ...process.env, WAYPOST_WRITES_MATRIX: "true" };
  const { status } = spawnSync("npx", [...args, ...reporters], { cwd: home, stdio: "inherit", env });
  if (status !== 0) throw new Error("a test failed; the page was not changed");
  const report = JSON.parse(readFileSync(file, "utf8")) as Report;
  rmSync(folder, { recursive: true, force: true });
  return report;
}

const unique = (values: readonly string[]): string[] => [...new Set(values)];

function toTable(name: string, all: readonly Result[]): string {
  const results = all.filter((one) => one.package === name);
  const versions = unique(results.map(({ version }) => version));
  const rows = unique(results.map(({ feature }) => feature)).map((feature) => {
    const cells = versions.map((version) => {
      const found = results.find((one) => one.version === version && one.feature === feature);
      return found?.result === "yes" ? "yes" : "–";
    });
    return `| ${[feature, ...cells].join(" | ")} |`;
  });
  return [
    `| \`${name}\` | ${versions.join(" | ")} |`,
    `|---|${versions.map(() => "---|").join("")}`,
    ...rows,
  ].join("\n");
}

function main(): void {
  const { startTime, testResults } = runTests();
  const tests = testResults
    .flatMap(({ assertionResults }) => assertionResults)
    .filter(({ fullName }) => fullName.startsWith("@upstash/"));
  const results = tests.flatMap(({ meta }) => (meta.matrix ? [meta.matrix] : []));
  if (results.length === 0 || results.length < tests.length)
    throw new Error("a version could not be installed; the page was not changed");
  const tables = unique(results.map((one) => one.package))
    .toSorted()
    .map((name) => toTable(name, results));
  const date = new Date(startTime).toISOString().slice(0, 10);
  const about = `Run on ${date}, on SQLite. "–": this version of the client does not have the feature.`;
  const text = readFileSync(page, "utf8");
  const [before, rest = ""] = text.split(begin);
  const [, after] = rest.split(end);
  if (after === undefined) throw new Error(`${page}: has no markers for the matrix`);
  writeFileSync(page, `${before}${begin}\n\n${[about, ...tables].join("\n\n")}\n\n${end}${after}`);
}

main();
