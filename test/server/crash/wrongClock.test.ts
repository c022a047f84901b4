import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { expect, test } from "vitest";
import { developmentToken, runWaypost, startDestination, startWaypost, temporaryFolder } from "../waypost.ts";

const tenYears = 10 * 365 * 24 * 60 * 60 * 1_000;
const wrongClock = {
  NODE_OPTIONS: `--import=${fileURLToPath(new URL("clockOffset.js", import.meta.url))}`,
  TEST_CLOCK_OFFSET: String(tenYears),
};

test(
  "a server whose clock was ten years ahead continues after --accept-clock",
  { tags: "long" },
  async () => {
    const data = join(temporaryFolder(), "data");
    const args = ["dev", "--port", "0", "--data", data];
    let isUp = false;
    const destination = await startDestination(({ path }) =>
      !isUp && path === "/held"
        ? { status: 202, headers: { "svc-ack": "later" } }
        : { status: isUp ? 200 : 500 },
    );
    const send = async (url: string, path: string, headers: Record<string, string> = {}) => {
      const response = await fetch(`${url}/v2/${path}`, {
        method: "POST",
        headers: { authorization: `Bearer ${developmentToken}`, ...headers },
        body: path,
      });
      expect(response.status).toBe(200);
    };
    const paths = () => destination.arrivals.map(({ path }) => path);
    const seen = async (path: string) => {
      await expect.poll(() => paths()).toContain(path);
    };

    const ahead = await startWaypost(args, wrongClock);
    await send(ahead.url, `enqueue/q/${destination.url}/first`, { "svc-retry-delay": "6000" });
    await send(ahead.url, `publish/${destination.url}/delayed`, { "svc-delay": "8s" });
    await seen("/first");
    await send(ahead.url, `publish/${destination.url}/held`, {
      ...{ "svc-ack-timeout": "8s", "svc-retry-delay": "0" },
    });
    await seen("/held");
    // The failed attempt of the first message is stored when its retry is.
    await send(ahead.url, `publish/${destination.url}/other`, { "svc-retries": "0" });
    await seen("/other");
    ahead.kill("SIGKILL");
    await ahead.ended;
    destination.arrivals.length = 0;
    isUp = true;

    const refused = await runWaypost(args).ended;
    const [year] = new Date().toISOString().split("-");
    const [wrongYear] = new Date(Date.now() + tenYears).toISOString().split("-");
    expect(refused.code).toBe(2);
    expect(refused.err).toMatch(new RegExp(`the clock shows ${year}-.*the store has used ${wrongYear}-`));
    expect(refused.err).toContain("--accept-clock");
    const doctor = await runWaypost(["doctor", "--data", data]).ended;
    expect(doctor.out).toMatch(new RegExp(`times.*${wrongYear}-`, "u"));

    const accepted = await startWaypost([...args, "--accept-clock"]);
    await send(accepted.url, `enqueue/q/${destination.url}/second`);
    await send(accepted.url, `publish/${destination.url}/now`);
    for (const path of ["/now", "/delayed", "/held", "/first", "/second"]) await seen(path);
    expect(paths().indexOf("/first")).toBeLessThan(paths().indexOf("/second"));
    accepted.kill("SIGTERM");
    expect((await accepted.ended).code).toBe(0);

    const plain = await startWaypost(args);
    await send(plain.url, `enqueue/q/${destination.url}/third`);
    await seen("/third");
    expect((await runWaypost(["doctor", "--data", data]).ended).out).not.toContain("--accept-clock");
  },
);
