import { globSync, readFileSync } from "node:fs";
import { basename, dirname, join } from "node:path";
import { expect, test } from "vitest";
import { parse } from "yaml";
import { z } from "zod";
import { commandsFor } from "../../client/startCommand.ts";
import { startWaypost } from "../../server/waypost.ts";

// The recipes in `examples/apps`, one for each product.

const home = join(import.meta.dirname, "../../..");
const read = (file: string): string => readFileSync(join(home, file), "utf8");
const filesNamed = (name: string): string[] => globSync(`examples/apps/*/${name}`, { cwd: home }).toSorted();

const overrideSchema = z.strictObject({
  services: z.record(
    z.string(),
    z.object({
      image: z.string().optional(),
      environment: z.record(z.string(), z.string()),
      networks: z.array(z.string()).optional(),
      depends_on: z.record(z.string(), z.unknown()).optional(),
      volumes: z.array(z.string()).optional(),
    }),
  ),
  volumes: z.record(z.string(), z.null()),
});

test("each product has a page and its settings, and the README names it", () => {
  const folders = filesNamed("README.md").map((file) => basename(dirname(file)));
  expect(folders).toEqual(["basestack", "dub", "inbox-zero", "lobehub", "papermark", "superset"]);
  expect(filesNamed(".env.example").map((file) => basename(dirname(file)))).toEqual(folders);
  for (const folder of folders) expect(read("README.md")).toContain(`(examples/apps/${folder}/README.md)`);
});

test.each(filesNamed("compose.override.yaml"))(
  "%s names only what it defines and what is in .env",
  (file) => {
    const { services, volumes } = overrideSchema.parse(parse(read(file)));
    const { waypost, ...applications } = services;
    const [[application, settings] = []] = Object.entries(applications);
    expect(waypost?.environment["WAYPOST_EGRESS_ALLOW"]).toBe(application);
    expect(settings?.environment["QSTASH_URL"]).toBe("http://waypost:8080");
    expect(Object.keys(settings?.depends_on ?? {})).toEqual(["waypost"]);
    expect(waypost?.volumes?.map((volume) => volume.split(":")[0])).toEqual(Object.keys(volumes));
    const used = [...read(file).matchAll(/\$\{(\w+)\}/g)].map(([, name]) => name);
    const given = [...read(join(dirname(file), ".env.example")).matchAll(/^(\w+)=/gm)].map(
      ([, name]) => name,
    );
    expect(new Set(used)).toEqual(new Set(given));
  },
);

test.each(filesNamed("waypost.yaml"))("%s can be applied", async (file) => {
  const { url } = await startWaypost(["dev", "--port", "0"]);
  const run = commandsFor(url);
  expect(await run("apply", join(home, file))).toMatchObject({ code: 0, err: "" });
  expect(await run("apply", join(home, file))).toMatchObject({
    out: expect.stringMatching(/^0 changes made; [13] unchanged\n$/),
  });
});
