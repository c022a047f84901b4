// node scripts/ciSummary.js <report>...: prints the slowest test files in Vitest's JSON reports, and how
// many tests passed and failed.
import { readFileSync } from "node:fs";
import { relative } from "node:path";

const seconds = new Map();
let passed = 0;
let failed = 0;
for (const name of process.argv.slice(2)) {
  const { numPassedTests, numFailedTests, testResults } = read(name);
  // A file that could not be loaded has no tests, but has failed.
  const broken = testResults.filter(
    (file) => file.status === "failed" && file.assertionResults.every((test) => test.status !== "failed"),
  );
  passed += numPassedTests;
  failed += numFailedTests + broken.length;
  for (const file of testResults)
    seconds.set(file.name, (seconds.get(file.name) ?? 0) + (file.endTime - file.startTime) / 1_000);
}

const slowest = [...seconds].toSorted(([, a], [, b]) => b - a).slice(0, 10);
console.log("slowest test files, in seconds:");
for (const [file, time] of slowest) console.log(`${time.toFixed(1).padStart(7)}  ${relative(".", file)}`);
console.log(`${passed} passed, ${failed} failed`);

/** Reads a report. A run that ended without a report counts as one failed test. */
function read(name) {
  try {
    return JSON.parse(readFileSync(name, "utf8"));
  } catch {
    return { numPassedTests: 0, numFailedTests: 1, testResults: [] };
  }
}
