import { expect, test } from "vitest";
import type { z } from "zod";
import { serverSettingNames, serverSettings, settingGroups } from "../../src/settings/config.ts";
import { runWaypost } from "../server/waypost.ts";

type Row = { takes: z.ZodType; default: string; example: string };
const rows = settingGroups.flatMap((group) => Object.entries<Row>(group.rows));

test("every setting belongs to one subject", () => {
  expect(rows.map(([name]) => name)).toEqual(serverSettingNames);
});

test("every setting describes its values, and accepts its default and its example", () => {
  for (const [name, { takes, default: initial, example }] of rows) {
    expect(takes.description, name).toMatch(/./);
    expect(takes.safeParse(initial).success, `${name}, default`).toBe(true);
    // A document must show no key, because a reader might use it.
    const isCredential = ["keys", "ownerToken", "signingKey", "nextSigningKey"].includes(name);
    expect(takes.safeParse(example).success, `${name}, example`).toBe(!isCredential);
    expect(example, name).not.toBe(initial);
  }
});

test("the help and the errors name the values of a setting", async () => {
  const { out } = await runWaypost(["start", "--help"]).ended;
  const { err } = await runWaypost(["config", "--log-level", "loud"]).ended;
  const values = serverSettings.logLevel.takes.description ?? "";
  expect(out.replaceAll(/\s+/g, " ")).toContain(`(WAYPOST_LOG_LEVEL, default info; ${values})`);
  expect(err).toContain(`--log-level: must be ${values}`);
});
