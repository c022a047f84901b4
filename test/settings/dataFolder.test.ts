import {
  chmodSync,
  existsSync,
  mkdirSync,
  readdirSync,
  rmdirSync,
  rmSync,
  statSync,
  symlinkSync,
  writeFileSync,
  lchownSync,
} from "node:fs";
import { join } from "node:path";
import { DatabaseSync } from "node:sqlite";
import { request } from "undici";
import { describe, expect, test } from "vitest";
import {
  developmentToken,
  runWaypost,
  startDestination,
  startWaypost,
  temporaryFolder,
} from "../server/waypost.ts";

const dev = (data: string): string[] => ["dev", "--port", "0", "--data", data];

describe("a folder that a server is using", () => {
  test(
    "is refused to another server even if its lock file was removed or replaced",
    { tags: "long" },
    async () => {
      const data = temporaryFolder();
      const first = await startWaypost(dev(data));
      const lock = join(data, "waypost.lock");
      const refusal = {
        code: 2,
        err: expect.stringContaining("another process, perhaps a waypost server, has"),
      };
      rmSync(lock);
      expect(await runWaypost(dev(data)).ended).toMatchObject(refusal);
      // The refused server has left a lock file, which must not count either.
      expect(await runWaypost(dev(data)).ended).toMatchObject(refusal);
      rmSync(lock);
      writeFileSync(lock, "");
      expect(await runWaypost(dev(data)).ended).toMatchObject(refusal);
      const destination = await startDestination();
      const headers = { authorization: `Bearer ${developmentToken}` };
      const answer = await request(`${first.url}/v2/publish/${destination.url}/kept`, {
        method: "POST",
        headers,
        body: "x",
      });
      expect(answer.statusCode).toBe(200);
      await destination.until((arrivals) => arrivals.length === 1);
      first.kill("SIGKILL");
      await first.ended;
      await startWaypost(dev(data));
    },
  );

  test("may be open in a tool when its server starts again", { tags: "long" }, async () => {
    const data = temporaryFolder();
    const first = await startWaypost(dev(data));
    first.kill("SIGKILL");
    await first.ended;
    const tool = new DatabaseSync(join(data, "waypost.db"));
    tool.exec("begin; select count(*) from messages");
    expect((await startWaypost(dev(data))).url).toMatch(/^http:/);
    tool.close();
  });
});

describe("a folder to which others can write", () => {
  test("is used with a warning if its group can write", async () => {
    const data = temporaryFolder();
    chmodSync(data, 0o770);
    const server = await startWaypost(["start", "--port", "0", "--data", data]);
    expect(existsSync(join(data, "waypost.db"))).toBe(true);
    server.kill("SIGTERM");
    expect((await server.ended).err).toContain("its group can replace its files");
  });

  test("keeps the second copy with a warning", async () => {
    const folder = temporaryFolder();
    const replica = join(folder, "replica");
    mkdirSync(replica);
    chmodSync(replica, 0o777);
    const server = await startWaypost([...dev(join(folder, "data")), "--replicate", replica]);
    server.kill("SIGTERM");
    expect((await server.ended).err).toContain(
      `--replicate: ${replica}: every user of this machine can replace its files`,
    );
  });

  test("gets its own subfolder if all users can write, and commands find it", async () => {
    const data = temporaryFolder();
    chmodSync(data, 0o1777);
    const server = await startWaypost(dev(data));
    expect(readdirSync(data)).toEqual(["waypost"]);
    expect(statSync(join(data, "waypost")).mode & 0o777).toBe(0o700);
    expect((await runWaypost(["credentials", "defaultUser", "--data", data]).ended).code).toBe(0);
    server.kill("SIGTERM");
    expect((await server.ended).err).not.toContain("replace its files");
  });

  test("is still used if it has a store, with a warning", { tags: "long" }, async () => {
    const data = temporaryFolder();
    const first = await startWaypost(dev(data));
    first.kill("SIGTERM");
    await first.ended;
    chmodSync(data, 0o777);
    const again = await startWaypost(["start", "--port", "0", "--data", data]);
    expect(existsSync(join(data, "waypost"))).toBe(false);
    again.kill("SIGTERM");
    expect((await again.ended).err).toContain("every user of this machine can replace its files");
  });

  // Only root can create a folder for another user.
  const isRoot = process.getuid?.() === 0;

  test.for([
    ["the folder", (place: string) => mkdirSync(join(place, "waypost"))],
    ["a link in its place", (place: string) => symlinkSync(temporaryFolder(), join(place, "waypost"))],
  ] as const)("is refused if another user made %s", async ([, make], { skip }) => {
    if (!isRoot) skip();
    const place = temporaryFolder();
    chmodSync(place, 0o1777);
    make(place);
    lchownSync(join(place, "waypost"), 12_345, 12_345);
    const refusal = { code: 2, err: expect.stringContaining("belongs to another user (12345)") };
    expect(await runWaypost(dev(place)).ended).toMatchObject(refusal);
    expect(await runWaypost(dev(join(place, "waypost"))).ended).toMatchObject(refusal);
  });

  test("is refused if another user made the store", async ({ skip }) => {
    if (!isRoot) skip();
    const place = temporaryFolder();
    chmodSync(place, 0o1777);
    new DatabaseSync(join(place, "waypost.db")).close();
    writeFileSync(join(place, "waypost.db"), "");
    lchownSync(join(place, "waypost.db"), 12_345, 12_345);
    const refusal = { code: 2, err: expect.stringContaining("belongs to another user (12345)") };
    expect(await runWaypost(dev(place)).ended).toMatchObject(refusal);
  });
});

test("is refused if its socket cannot be created, and can be used afterwards", async () => {
  const data = join(temporaryFolder(), "data");
  const socket = join(data, "waypost.sock");
  mkdirSync(socket, { recursive: true, mode: 0o700 });
  const refused = await runWaypost(["dev", "--port", "0", "--data", data]).ended;
  expect(refused).toMatchObject({
    code: 2,
    err: expect.stringMatching(
      /^waypost: .*waypost\.sock: the socket for commands cannot be created .*remove/m,
    ),
  });
  rmdirSync(socket);
  const server = await startWaypost(["dev", "--port", "0", "--data", data]);
  server.kill("SIGTERM");
  expect((await server.ended).code).toBe(0);
});
