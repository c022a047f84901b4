// @module-tag long
import { expect, test } from "vitest";
import { runKills, runOutage } from "./kills.ts";

/** The number of kills. CONTRIBUTING.md says how to have 1,000. */
const kills = Number(process.env["TEST_OUTBOX_KILLS"] ?? 50);

test("no kill of the server, the database or the connection loses a row or publishes it twice", async () => {
  const trial = await runKills(kills);
  expect(trial.lost).toEqual([]);
  expect(trial.twice).toEqual([]);
  expect(trial.committed).toBe(16 * kills);
}, 3_600_000);

/** The seconds without the database. CONTRIBUTING.md says how to have ten minutes. */
const outage = Number(process.env["TEST_OUTBOX_OUTAGE"] ?? 5);

test("a time without the database loses no row, although the server is killed in it", async () => {
  const trial = await runOutage(outage);
  expect(trial.lost).toEqual([]);
  expect(trial.twice).toEqual([]);
  expect(trial.committed).toBe(480);
  expect(trial.shown).toMatchObject({
    outbox: { state: "failing", error: expect.stringMatching(/refuses connections|cannot be reached/) },
    deadLetters: { messages: [{ labels: ["outbox:shop"] }] },
    doctor: expect.stringContaining("1 outbox.failing"),
    overview: expect.stringContaining("Rows of outbox shop wait: the database"),
  });
}, 1_200_000);
