import { createHmac } from "node:crypto";
import { operatorPassword } from "../consoleServer.ts";
import type { Locator } from "playwright-core";
import { expect } from "vitest";
import { call, until } from "../seed.ts";
import type { Incident, OnCall, World } from "./onCall.ts";
import { openSmallDisk } from "./smallDisk.ts";

const noRetry = { "svc-retries": "0" };
const readPath = async (world: World, path: string): Promise<never> =>
  (await call(world.server, `GET ${path}`)) as never;

async function publish(
  { server, shop }: World,
  count: number,
  headers: Record<string, string>,
): Promise<void> {
  for (let at = 0; at < count; at++)
    await call(server, `POST /v2/publish/${shop.url}/order`, {
      headers,
      body: JSON.stringify({ order: at }),
    });
}

const countUnfinished = async (world: World): Promise<number> => {
  const { unfinished } = (await readPath(world, "/v2/overview")) as { unfinished: { count: number } };
  return unfinished.count;
};
const countDead = async (world: World): Promise<number> =>
  ((await readPath(world, "/v2/overview")) as { deadLetters: number }).deadLetters;

async function isRunIn(world: World, id: string, state: string): Promise<boolean> {
  const found = (await readPath(world, `/v2/workflows/logs?workflowRunId=${id}`)) as {
    runs: { workflowState: string }[];
  };
  return found.runs[0]?.workflowState === state;
}

const trigger = ({ server }: World, id: string, body: object): Promise<unknown> =>
  call(server, `POST /v2/trigger/${server.destinations.url}/workflows/order`, {
    headers: { "svc-workflow-runid": id, ...noRetry },
    body: JSON.stringify({ id, ...body }),
  });

/** Publishes a message of an import. Returns the status. */
async function publishImport({ server, shop }: World): Promise<number> {
  const response = await fetch(`${server.url}/v2/publish/${shop.url}/import`, {
    method: "POST",
    headers: { authorization: `Bearer ${server.token}`, "svc-delay": "1d", "svc-label": "import" },
    body: new Uint8Array(1_000_000),
  });
  await response.arrayBuffer();
  return response.status;
}

const secret = "the-secret-of-the-sender";
const sources = new WeakMap<World, string>();
const newTokens = new WeakMap<World, string>();

/** Calls a source as GitHub does, with a signature. Returns the status. */
async function callSource(world: World): Promise<number> {
  const body = JSON.stringify({ order: 1 });
  const signature = createHmac("sha256", secret).update(body).digest("hex");
  const headers = { "x-hub-signature-256": `sha256=${signature}`, "content-type": "application/json" };
  const response = await fetch(sources.get(world) ?? "", { method: "POST", headers, body });
  return response.status;
}

/** Finds the row of a group of dead letters on the overview. */
const findGroup = ({ page }: OnCall, text: string): Locator =>
  page.locator("ul.needs li").filter({ hasText: text }).first();

/** The incidents that a person on call must see on the first page, and repair with the console alone. */
export const incidents: readonly Incident[] = [
  {
    name: "a destination answers 500",
    cause: async (world) => {
      world.shop.mode = "fail";
      await publish(world, 4, noRetry);
    },
    told: /has accepted nothing for .*status 500/,
    repair: async (onCall, { shop }) => {
      shop.mode = "ok";
      await onCall.press("Retry", findGroup(onCall, "“out of order”"));
      await onCall.press("Retry 4");
    },
    healed: async (world) => (await countDead(world)) === 0 && world.shop.accepted === 4,
  },
  {
    name: "a destination hangs",
    cause: async (world) => {
      world.shop.mode = "hang";
      await publish(world, 4, { "svc-retry-delay": "1000", "svc-timeout": "15m" });
    },
    told: /has answered none of 4 deliveries/,
    within: 45_000,
    repair: async (onCall, { shop }, row) => {
      shop.mode = "ok";
      await onCall.press("Show", row);
      await onCall.press("End attempts and retry");
      await onCall.confirm("End attempts and retry");
    },
    healed: async (world) => (await countUnfinished(world)) === 0 && world.shop.accepted === 4,
  },
  {
    name: "a queue was paused and forgotten",
    cause: async ({ server, shop }) => {
      await call(server, "POST /v2/queues/mail/pause");
      for (let at = 0; at < 3; at++) await call(server, `POST /v2/enqueue/mail/${shop.url}/mail`);
    },
    told: /Queue mail is paused: 3 messages wait/,
    repair: (onCall, _world, row) => onCall.press("Resume queue", row),
    healed: async (world) => (await countUnfinished(world)) === 0 && world.shop.accepted === 3,
  },
  {
    name: "a key has a rate that is too low",
    cause: (world) =>
      publish(world, 5, {
        "svc-flow-control-key": "crm",
        "svc-flow-control-value": "rate=1, period=1h",
      }),
    told: /Key crm sends as fast as its limits allow/,
    isNote: true,
    // A message may wait for a minute.
    within: 100_000,
    repair: async (onCall, _world, row) => {
      await onCall.press("Show", row);
      await onCall.fill(/^Rate/, "1000");
      await onCall.confirm("Pin limits");
    },
    healed: async (world) => (await countUnfinished(world)) === 0,
  },
  {
    name: "a run waits for an event that was lost",
    cause: async (world) => {
      world.server.destinations.failsReceipt = false;
      await trigger(world, "order-1", { waits: true });
    },
    told: null,
    repair: async (onCall) => {
      await onCall.press(/^Runs/);
      await onCall.press("Notify", onCall.page.getByRole("row").filter({ hasText: "order-1" }));
      await onCall.confirm("Notify");
    },
    healed: (world) => isRunIn(world, "order-1", "RUN_SUCCESS"),
  },
  {
    name: "a deployment made the runs fail, and was rolled back",
    cause: async (world) => {
      world.server.destinations.failsReceipt = true;
      for (const id of ["order-1", "order-2"]) await trigger(world, id, {});
    },
    told: /Runs of .* failed at/,
    repair: async (onCall, { server }, row) => {
      server.destinations.failsReceipt = false;
      await onCall.press("Resume", row);
      await onCall.press("Resume 2");
    },
    healed: async (world) => (await countDead(world)) === 0 && (await countUnfinished(world)) === 0,
  },
  {
    name: "three causes have filled the dead letters, and all are repaired, the largest first",
    cause: async (world) => {
      world.shop.mode = "fail";
      const { server, shop } = world;
      for (const [path, count] of [
        ["rare", 3],
        ["large", 90],
        ["some", 20],
      ] as const) {
        const one = { destination: `${shop.url}/${path}`, headers: noRetry };
        await call(server, "POST /v2/batch", {
          body: JSON.stringify(Array.from({ length: count }, () => one)),
        });
      }
      await until("the dead letters", async () => (await countDead(world)) === 113);
    },
    told: /out of order/,
    repair: async (onCall, { shop }) => {
      shop.mode = "ok";
      const groups = onCall.page.locator("ul.needs li").filter({ hasText: "“out of order” at" });
      // The largest cause is the first, although others are newer.
      expect(await groups.first().innerText()).toMatch(/\/large[^]*90/);
      await onCall.press("Retry", groups.first());
      await onCall.press("Retry 90");
      await expect.poll(() => shop.accepted).toBe(90);
      // The plan is then on all other dead letters.
      await onCall.press("Remove the filter Cause");
      await onCall.press("Retry 23");
    },
    healed: async (world) => (await countDead(world)) === 0 && world.shop.accepted === 113,
  },
  {
    name: "the token of an application was revoked",
    cause: async (world) => {
      const { server, shop } = world;
      const rights = { name: "billing", verbs: ["publish"] };
      const made = (await call(server, "POST /v2/tokens", { body: JSON.stringify(rights) })) as {
        tokenId: string;
        token: string;
      };
      await call(server, `DELETE /v2/tokens/${made.tokenId}`);
      const headers = { authorization: `Bearer ${made.token}` };
      for (let at = 0; at < 3; at++)
        await fetch(`${server.url}/v2/publish/${shop.url}/x`, { method: "POST", headers });
    },
    told: /Token billing was refused/,
    repair: async (onCall, world, row) => {
      await onCall.press("Show", row);
      await onCall.press("Create a token");
      await onCall.confirm(/^Create/);
      newTokens.set(world, await onCall.page.getByRole("status").locator("code").first().innerText());
    },
    healed: async (world) => {
      const { server, shop } = world;
      const headers = { authorization: `Bearer ${newTokens.get(world)}` };
      return (
        (await fetch(`${server.url}/v2/publish/${shop.url}/x`, { method: "POST", headers })).status === 200
      );
    },
  },
  {
    name: "the messages of a schedule fail",
    cause: async ({ server, shop }) => {
      shop.mode = "fail";
      const headers = { "svc-cron": "0 0 1 1 *", "svc-schedule-id": "nightly", ...noRetry };
      await call(server, `POST /v2/schedules/${shop.url}/gone`, { headers });
      await call(server, "POST /v2/schedules/nightly/run");
    },
    told: /The last message of schedule nightly failed: status 500/,
    repair: async (onCall, { shop }, row) => {
      shop.mode = "ok";
      await onCall.press("Show", row);
      await onCall.press("Run now");
    },
    healed: async (world) => {
      const { conditions } = (await readPath(world, "/v2/overview")) as { conditions: { kind: string }[] };
      return world.shop.accepted === 1 && conditions.every(({ kind }) => kind !== "schedule.failing");
    },
  },
  {
    name: "an account floods the server",
    cause: (world) => publish(world, 30, {}),
    told: null,
    repair: async (onCall) => {
      const { page } = onCall;
      await onCall.press("defaultUser");
      await onCall.press("Log in as operator");
      await page.getByLabel("Password").fill(operatorPassword);
      await onCall.press("Sign in");
      const busy = page.getByRole("region", { name: "Busiest accounts" });
      await busy.getByText("defaultUser").waitFor();
      const row = page.getByRole("region", { name: "Accounts" }).getByRole("row");
      await onCall.press("Disable", row.filter({ hasText: "defaultUser" }));
      await onCall.confirm("Disable account");
    },
    healed: async ({ server, shop }) => {
      const headers = { authorization: `Bearer ${server.token}` };
      const publishing = await fetch(`${server.url}/v2/publish/${shop.url}/x`, { method: "POST", headers });
      return publishing.status === 403 || publishing.status === 401;
    },
  },
  {
    name: "a source has the wrong secret",
    cause: async (world) => {
      const { server, shop } = world;
      const made = (await call(server, "POST /v2/sources", {
        body: JSON.stringify({
          name: "shop",
          destination: `${shop.url}/hook`,
          verification: { scheme: "github", secret: "a-wrong-secret-of-it" },
        }),
      })) as { url: string };
      sources.set(world, made.url);
      for (let at = 0; at < 3; at++) await callSource(world);
    },
    told: /Source shop rejected 3 calls/,
    repair: async (onCall, _world, row) => {
      await onCall.press("Show", row);
      await onCall.press("Edit", onCall.page.getByRole("row").filter({ hasText: "shop" }));
      await onCall.fill(/^Secret/, secret);
      await onCall.confirm("Save");
    },
    healed: async (world) => (await callSource(world)) === 200,
  },
  {
    name: "an import has filled the disk",
    open: openSmallDisk,
    cause: async (world) => {
      while ((await publishImport(world)) === 200);
    },
    told: /The server refuses new messages: its disk is almost full/,
    repair: async (onCall, _world, row) => {
      await onCall.press("Show messages", row);
      await onCall.press("Act on all");
      await onCall.press(/^Cancel \d+$/);
      await onCall.confirm(/^Cancel \d+$/);
    },
    healed: async (world) => (await publishImport(world)) === 200,
  },
  {
    name: "an application uses one deduplication id for all its messages",
    cause: async (world) => {
      await publish(world, 12, { "svc-deduplication-id": "order", ...noRetry });
      await until("the first order", async () => world.shop.accepted === 1);
    },
    told: /11 publishes were dropped within an hour, because they repeat earlier ones/,
    repair: async (onCall, { shop }, row) => {
      const { page } = onCall;
      await onCall.press("Show", row);
      await onCall.press(/^msg_/, page.getByRole("row").filter({ hasText: "Duplicate" }));
      // The cause: this id is in each of them.
      await page.locator(".drawer").getByText("order", { exact: true }).first().waitFor();
      await onCall.press("Publish");
      await page.getByRole("textbox", { name: "Destination" }).fill(`${shop.url}/order`);
      await page.getByLabel("Body", { exact: true }).fill('{"order":1}');
      await onCall.press("Publish", page.locator("form.form"));
    },
    healed: async ({ shop }) => shop.accepted === 2,
  },
  {
    name: "an application sends to a name that does not exist",
    cause: async (world) => {
      const { server } = world;
      for (let at = 0; at < 4; at++)
        await call(server, "POST /v2/publish/http://shop.invalid:4000/order", { headers: noRetry });
      await until("the dead letters", async () => (await countDead(world)) === 4);
    },
    told: /shop\.invalid/,
    repair: async (onCall, { shop }) => {
      const { page } = onCall;
      await onCall.press("Retry", findGroup(onCall, "shop.invalid:4000/order"));
      await onCall.press("Change and retry");
      await page.getByLabel("New URL").fill(`${shop.url}/order`);
      await onCall.press("Retry 4");
    },
    healed: async (world) => (await countDead(world)) === 0 && world.shop.accepted === 4,
  },
];
