import { join } from "node:path";
import { expect, test } from "vitest";
import type { DamageRound } from "./damagedFiles.ts";
import { runRound, createTemplate } from "./damagedFiles.ts";
import { createTestFolder } from "../storeFixture.ts";

const rounds = Number(process.env.TEST_DAMAGE_ROUNDS ?? 60);
const firstSeed = Number(process.env.TEST_DAMAGE_SEED ?? 1);

/** Returns a table that counts the rounds by what was damaged and by what noticed it. */
function figuresOf(all: readonly DamageRound[]): string {
  const count = (key: (round: DamageRound) => string): [string, number][] =>
    [...Map.groupBy(all, key)]
      .map(([name, some]): [string, number] => [name, some.length])
      .sort((a, b) => b[1] - a[1]);
  return count(({ noticed, where }) => `${noticed} | ${where}`)
    .map(([name, n]) => `| ${name} | ${n} |`)
    .join("\n");
}

test(
  `${rounds} random damages deliver nothing altered and lose only damaged content`,
  { timeout: 600_000 + rounds * 2_000 },
  async () => {
    const template = await createTemplate(firstSeed);
    const folder = join(createTestFolder(), "round");
    const all: DamageRound[] = [];
    const faults: string[] = [];
    for (let seed = firstSeed; seed < firstSeed + rounds; seed++) {
      const round = await runRound(template, seed, folder);
      all.push(round);
      faults.push(...round.faults.map((fault) => `seed ${seed}, ${round.where}: ${fault}`));
    }
    if (process.env.TEST_DAMAGE_ROUNDS) process.stdout.write(`${figuresOf(all)}\n`);
    expect(faults).toEqual([]);
  },
);
