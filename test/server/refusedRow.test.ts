import { once } from "node:events";
import { createServer } from "node:net";
import type { AddressInfo } from "node:net";
import { DatabaseSync } from "node:sqlite";
import { request } from "undici";
import { expect, onTestFinished, test } from "vitest";
import { toStorePath } from "../../src/settings/dataFolder.ts";
import { developmentToken, startDestination, startWaypost, temporaryFolder } from "./waypost.ts";

test("a server starts although one row cannot be reclaimed, and sends all other messages", async () => {
  const data = temporaryFolder();
  const destination = await startDestination();
  const hanging = createServer();
  onTestFinished(() => void hanging.close());
  await once(hanging.listen(0, "127.0.0.1"), "listening");
  const { port } = hanging.address() as AddressInfo;
  const args = ["dev", "--port", "0", "--data", data];
  const first = await startWaypost(args);
  const publish = async (url: string, to: string, delay = "0s"): Promise<void> => {
    const headers = { authorization: `Bearer ${developmentToken}`, "svc-delay": delay };
    const { statusCode, body } = await request(`${url}/v2/publish/${to}`, { method: "POST", headers });
    await body.dump();
    expect(statusCode).toBe(200);
  };
  const begun = once(hanging, "connection");
  await publish(first.url, `http://127.0.0.1:${port}/`);
  await begun;
  await publish(first.url, `${destination.url}/late`, "1s");
  first.kill("SIGKILL");
  await first.ended;
  const tool = new DatabaseSync(toStorePath(data));
  tool.exec(
    "create trigger refusal before update on messages when old.state = 'active' and new.state = 'active' " +
      "begin select raise(abort, 'row refused'); end",
  );
  tool.close();
  const second = await startWaypost(args);
  await destination.until((arrivals) => arrivals.some(({ path }) => path === "/late"));
  await publish(second.url, `${destination.url}/new`);
  await destination.until((arrivals) => arrivals.some(({ path }) => path === "/new"));
  second.kill("SIGTERM");
  const { code, err } = await second.ended;
  expect({ code, err }).toEqual({ code: 0, err: expect.stringContaining("row refused") });
});
