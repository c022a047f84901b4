import { expect, test } from "vitest";
import { developmentToken, startDestination } from "../server/waypost.ts";
import { expectDone, startServer } from "./startCommand.ts";

test("limits of keys and queues are set, pinned and unpinned", async () => {
  const { server, run, runJson } = await startServer();
  expect((await expectDone(run, "flow-control", "pin", "crm", "--parallelism", "5")).out).toBe(
    "crm: parallelism 5 (pinned), rate no limit\n",
  );
  const pinned = ["flow-control", "pin", "crm", "--rate", "100", "--period", "1m"];
  expect((await expectDone(run, ...pinned)).out).toBe(
    "crm: parallelism 5 (pinned), rate 100 in 1m (pinned)\n",
  );
  expect((await expectDone(run, "flow-control")).out).toMatch(
    /^KEY .*PINNED.*\ncrm +0 +0\/5 +0\/100 +1m +parallelism, rate/,
  );
  expect((await expectDone(run, "flow-control", "unpin", "crm", "--rate")).out).toBe(
    "crm: parallelism 5 (pinned), rate 100 in 1m\n",
  );
  expect(await runJson("flow-control", "unpin", "crm")).toMatchObject({
    ...{ parallelismMax: 5, isPinnedParallelism: false, isPinnedRate: false },
  });
  expect(await run("flow-control", "pin", "crm")).toMatchObject({
    ...{ code: 1, err: expect.stringContaining("nothing to pin") },
  });
  expect(await run("flow-control", "pin", "crm", "--rate", "many")).toMatchObject({ code: 1, out: "" });

  expect(await run("queues", "set", "parcels", "--parallelism", "3")).toMatchObject({ code: 3, out: "" });
  await fetch(`${server.url}/v2/queues`, {
    method: "POST",
    headers: { authorization: `Bearer ${developmentToken}` },
    body: JSON.stringify({ queueName: "parcels", parallelism: 2 }),
  });
  expect((await expectDone(run, "queues", "set", "parcels", "--parallelism", "3")).out).toBe(
    "parcels: parallelism 3\n",
  );
  expect(await runJson("queues")).toMatchObject([{ name: "parcels", parallelism: 3 }]);
  expect(await run("queues", "set", "parcels", "--parallelism", "all")).toMatchObject({ code: 2 });
});

test("a run is notified of the event that it waits for", async () => {
  const { server, run, runJson } = await startServer();
  const destination = await startDestination();
  const started = async (): Promise<string> => {
    const { workflowRunId } = await runJson("trigger", `${destination.url}/workflow`, "--delay", "1h");
    return String(workflowRunId);
  };
  const wait = (id: string, event: string, stepId: number): Promise<Response> =>
    fetch(`${server.url}/v2/wait/${encodeURIComponent(event)}`, {
      method: "POST",
      headers: { authorization: `Bearer ${developmentToken}`, "svc-workflow-runid": id },
      body: JSON.stringify({
        url: `${destination.url}/event`,
        step: { stepId, stepName: `wait for ${event}`, stepType: "Wait" },
      }),
    });
  const id = await started();
  expect(await run("runs", "notify", id)).toMatchObject({
    ...{ code: 1, err: expect.stringContaining("waits for no event") },
  });
  expect((await expectDone(run, "runs", "notify", id, "early")).out).toBe(
    `${id} keeps the event; its next step that waits for it receives it\n`,
  );
  expect((await wait(id, "order 1 paid", 1)).status).toBe(200);
  const data = ["--body", '{"paid":true}', "--content-type", "application/json"];
  expect((await expectDone(run, "runs", "notify", id, ...data)).out).toBe(
    `${id} was notified of "order 1 paid"\n`,
  );
  await destination.until((arrivals) => arrivals.length === 1);
  const decode = (text: string): string => Buffer.from(text, "base64").toString();
  const [, posted] = JSON.parse(String(destination.arrivals[0]?.body)) as { body: string }[];
  const { out } = JSON.parse(decode(posted?.body ?? "")) as { out: string };
  expect(decode(out)).toBe('{"paid":true}');

  const other = await started();
  for (const [at, event] of ["one", "two"].entries()) await wait(other, event, at + 1);
  expect(await run("runs", "notify", other)).toMatchObject({
    ...{ code: 2, err: expect.stringMatching(/name one of "(one|two)", "(one|two)"/) },
  });
  expect(await runJson("runs", "notify", other, "two")).toMatchObject([{ workflowRunId: other }]);
  expect(await run("runs", "notify", "wfr_none", "x")).toMatchObject({ code: 3, out: "" });
});
