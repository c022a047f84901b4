import { expect, test } from "vitest";
import { settingRows } from "../../../src/api/settings/table.ts";
import { workflowSettingNames } from "../../../src/api/settings/workflow.ts";
import { hashToken } from "../../../src/api/auth/token.ts";
import { createTestServer } from "../../api/testServer.ts";
import { makeOutbox, openUserDatabase, relayParts, startRelay } from "./userDatabase.ts";

// Everybody who may call the functions of an outbox chooses the values of its rows.

/** Values that no setting and no header expects. */
const hostileValues: readonly unknown[] = [
  ...["", " ", "-1", "9".repeat(400), "1e999", "\u0001", "ü\u{1f600}", "a\r\nX-Other: b", "%00", "{{", "\\"],
  ...["x".repeat(70_000), true, false, null, 1e300, -0.5, 0, [], ["a", "b"], [["a"]], [null], {}, { a: 1 }],
  ["x", ...Array.from({ length: 2_000 }, () => "y")],
];

const settingNames = [...Object.keys(settingRows), ...workflowSettingNames, "cron", "queue-name", "callback"];
const headerNames = [
  ...["Host", "Content-Length", "Content-Type", "Content-Encoding", "Connection", "Transfer-Encoding"],
  ...["Upgrade", "TE", "Trailer", "Expect", "Keep-Alive", "Proxy-Authorization", "Authorization", "Cookie"],
  ...["Svc-Delay", "Upstash-Retries", "Svc-Signature", "", " ", "a b", "X:", "X\r\nY", "ü", "__proto__"],
  ...["constructor", "x".repeat(70_000)],
];

async function start(tokenOf?: { destinations: string[] }) {
  const server = await createTestServer();
  const user = await openUserDatabase();
  const hash = hashToken("token");
  const token = tokenOf
    ? await server.store.execute("createToken", {
        ...{ account: "acc_1", hash, scope: null, name: "", expiresAt: null },
        ...{ verbs: ["publish"], ...tokenOf },
      })
    : null;
  const outbox = makeOutbox(user.url, token ? { tokenId: token.id, tokenHash: hash } : {});
  await startRelay(relayParts(server.store), outbox);
  const count = async (table: string): Promise<number> =>
    Number((await user.sql.query(`select count(*) from waypost.${table}`)).rows[0].count);
  return { server, count, ...user };
}

test.each([
  ["setting", "publish", settingNames.map((name) => `Svc-${name}`)],
  ["setting of a callback", "publish", Object.keys(settingRows).map((name) => `Svc-Callback-${name}`)],
  ["setting of a run", "trigger", settingNames.map((name) => `Svc-${name}`)],
  ["header", "header", headerNames],
])(
  "each %s with each hostile value is taken or rejected, and stops no other row",
  async (_, kind, names) => {
    const { server, sql, count } = await start();
    const members = names.flatMap((name) => hostileValues.map((value) => ({ [name]: value })));
    const call = {
      publish: "waypost.publish('https://app.example/', 'x', one)",
      header: "waypost.publish('https://app.example/', 'x', '{}', one)",
      trigger: "waypost.trigger('https://app.example/', 'x', one)",
    }[kind];
    await sql.query(`select ${call} from jsonb_array_elements($1) as one`, [JSON.stringify(members)]);
    await sql.query("select waypost.publish('https://app.example/after', 'x')");
    await expect.poll(() => count("outbox")).toBe(0);
    await expect
      .poll(() => server.deliveries.some(({ message }) => message.url === "https://app.example/after"))
      .toBe(true);
    const [state] = await server.store.read.outboxes("acc_1");
    expect(state?.error).toBe(null);
    const rejected = await sql.query("select reason from waypost.outbox_rejected");
    expect((state?.taken ?? 0) + rejected.rows.length).toBe(members.length + 1);
    for (const { reason } of rejected.rows) {
      expect(reason).toMatch(/\S/);
      expect(reason.length).toBeLessThanOrEqual(1_000);
    }
  },
  120_000,
);

test("a body of 100 MB is rejected without being read", { tags: "long" }, async () => {
  const { server, sql, count } = await start();
  await sql.query("select waypost.publish('https://app.example/', repeat('x', 100000000))");
  await sql.query("select waypost.publish('https://app.example/after', 'x')");
  await expect.poll(() => server.deliveries.length).toBe(1);
  await expect.poll(() => count("outbox")).toBe(0);
  const { rows } = await sql.query("select reason, octet_length(body) as size from waypost.outbox_rejected");
  expect(rows).toEqual([{ reason: expect.stringContaining("100000000 bytes"), size: 100_000_000 }]);
});

test("a destination that the token forbids is rejected", async () => {
  const { server, sql, count } = await start({ destinations: ["https://app.example/*"] });
  await sql.query("select waypost.publish('https://other.example/', 'x')");
  await sql.query("select waypost.publish('https://app.example/', 'x')");
  await sql.query(`select waypost.publish('https://app.example/', 'x',
    '{"Svc-Callback": "https://other.example/"}')`);
  await expect.poll(() => count("outbox")).toBe(0);
  const { rows } = await sql.query("select reason from waypost.outbox_rejected order by id");
  const reason = expect.stringContaining("token: not valid for https://other.example/");
  expect(rows).toEqual([{ reason }, { reason }]);
  expect(server.deliveries.map(({ message }) => message.url)).toEqual(["https://app.example/"]);
});
