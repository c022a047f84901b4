import { spawn, spawnSync } from "node:child_process";
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { describe, expect, onTestFinished, test } from "vitest";
import { callbackSchema, failureCallbackSchema } from "../../../src/api/views/callbackSchemas.ts";
import { openApi } from "../../../src/api/server/openapi.ts";
import { makeCallbackInput } from "../../../src/engine/core/sending/callback.ts";
import type { DestinationResponse } from "../../../src/engine/core/model/attempt.ts";
import type { StoredMessage } from "../../../src/engine/core/model/message.ts";
import type { RunPart } from "../../../src/engine/core/model/runPost.ts";
import { hashBody, signJwt } from "../../../src/engine/delivery/signature.ts";
import { makeDelivery, httpDestination, start } from "./http/destination.ts";
import { findFreePort } from "../../freePort.ts";

// Compares deliveries with the guides for receivers and the webhooks of the OpenAPI document.

const readGuide = (name: string): string =>
  readFileSync(join(import.meta.dirname, "../../../docs/guides", name), "utf8");

/** Returns the names in the first column of the tables of a section: cells that have only names. */
function namesIn(guide: string, section: string): string[] {
  const [, text = ""] = readGuide(guide).split(`\n## ${section}\n`);
  const [body = ""] = text.split("\n## ");
  const cells = [...body.matchAll(/^\| (`[^`|]+`(?:, `[^`|]+`)*) \|/gm)].map(([, cell = ""]) => cell);
  return cells.flatMap((cell) => [...cell.matchAll(/`([^`]+)`/g)].map(([, name = ""]) => name));
}

type Webhook = { post: { parameters: { name: string }[] } };
const webhooks = Object.values(openApi([])["webhooks"] as Record<string, Webhook>);

const run: RunPart = {
  run: "run_1",
  runId: "wfr_1",
  createdAt: 1_800_000_000_000,
  kind: "step",
  stepKey: "i",
  position: 0,
  size: 2,
};
/** A message with every optional field. */
const full: Partial<StoredMessage> = {
  callerIp: "9.9.9.9",
  group: "g",
  endpoint: "e",
  scheduleId: "scd_1",
  run,
  body: Buffer.from("hello"),
  ackKey: "sig_1",
};

test.each(["svc", "upstash"] as const)(
  "every header of a delivery is in the guide and the OpenAPI document: brand %s",
  async (brand) => {
    let names: string[] = [];
    const port = await httpDestination(({ headers }, response) => {
      names = Object.keys(headers).filter((name) => !["host", "connection", "content-length"].includes(name));
      response.end();
    });
    await start()({
      ...makeDelivery(`http://127.0.0.1:${port}/`, { ...full, brand }),
      standardKeys: ["sig_1"],
    });
    const shown = new Set(namesIn("receiving.md", "The request").map((name) => name.toLowerCase()));
    expect(
      [...new Set(names.map((name) => name.replace(/^upstash-/, "svc-")))].filter((name) => !shown.has(name)),
    ).toEqual([]);
    // Everything that the guide lists is sent, except for the headers of the message itself.
    expect([...shown].filter((name) => name !== "svc-forward-…" && name !== "content-type").length).toBe(
      new Set(names.map((name) => name.replace(/^upstash-/, "svc-"))).size,
    );
    expect(webhooks.length).toBe(3);
    for (const { post } of webhooks) {
      const listed = new Set(post.parameters.map(({ name }) => name.toLowerCase()));
      expect(names.filter((name) => !listed.has(name))).toEqual([]);
    }
  },
);

test("every field of a callback is in the guide and the OpenAPI document", () => {
  const { message } = makeDelivery("http://shop.example/", { ...full, retries: 3 });
  const callback = message.callback;
  if (callback === null) throw new Error("the message has no callback");
  const outcome: DestinationResponse = {
    status: null,
    headers: [["A", "b"]],
    body: new Uint8Array(0),
    error: "connection refused",
    cut: true,
  };
  const bodyWith = (dlqId: string | null): Record<string, unknown> => {
    const reportsOn = {
      kind: dlqId === null ? "callback" : "failureCallback",
      messageId: message.id,
      dlqId,
    } as const;
    return JSON.parse(
      Buffer.from(
        makeCallbackInput({ callback, message, retried: 2, outcome, reportsOn, maxBytes: 1_000_000 }).body,
      ).toString(),
    ) as Record<string, unknown>;
  };
  const body = bodyWith("dlq_1");
  expect(Object.keys(body).toSorted()).toEqual(namesIn("callbacks.md", "The body").toSorted());
  expect(Object.keys(failureCallbackSchema.shape).toSorted()).toEqual(Object.keys(body).toSorted());
  expect(failureCallbackSchema.strict().parse(body)).toEqual(body);
  expect(callbackSchema.strict().safeParse(bodyWith(null)).success).toBe(true);
  expect([body["status"], Buffer.from(String(body["body"]), "base64").toString()]).toEqual([
    -1,
    "connection refused",
  ]);
});

const receivers = [
  { language: "TypeScript", file: "receiver.mts", command: [process.execPath] },
  { language: "Python", file: "receiver.py", command: ["python3"] },
  { language: "Go", file: "receiver.go", command: ["go", "run"] },
];
/** Reports whether this machine has a program. CI is sure to have only Node.js. */
const isInstalled = ([program = ""]: string[]): boolean =>
  spawnSync(program, ["--help"], { stdio: "ignore" }).error === undefined;

describe.each(receivers)("the receiver in $language", ({ language, file, command }) => {
  test.skipIf(!isInstalled(command))("accepts only correctly signed requests", async () => {
    const [, source = ""] =
      new RegExp(`<!-- file: ${file} -->\n\`\`\`\\w+\n(.*?)\`\`\``, "s").exec(
        readGuide(`verify-${language.toLowerCase()}.md`),
      ) ?? [];
    const folder = mkdtempSync(join(tmpdir(), "waypost-guide-"));
    onTestFinished(() => rmSync(folder, { recursive: true }));
    writeFileSync(join(folder, file), source);
    const port = await findFreePort();
    const at = `http://127.0.0.1:${port}`;
    const env = {
      PATH: process.env["PATH"],
      HOME: folder,
      PUBLIC_URL: at,
      PORT: String(port),
      WAYPOST_CURRENT_SIGNING_KEY: "sig_1",
      WAYPOST_NEXT_SIGNING_KEY: "sig_2",
    };
    const [program = "", ...options] = command;
    const running = spawn(program, [...options, join(folder, file)], {
      env,
      stdio: "ignore",
      detached: true,
    });
    onTestFinished(() => void process.kill(-(running.pid ?? 0), "SIGKILL"));
    const url = `${at}/a?b=%20c`;
    const send = async (
      changes: Partial<Parameters<typeof signJwt>[0]>,
      name = "Svc-Signature",
    ): Promise<number> => {
      const signature = signJwt({
        brand: "svc",
        url,
        bodyHash: hashBody(Buffer.from("hello")),
        signingKey: "sig_1",
        now: Date.now(),
        id: "jwt_1",
        ...changes,
      });
      return (await fetch(url, { method: "POST", body: "hello", headers: { [name]: signature } })).status;
    };
    await expect.poll(() => send({}).catch(() => 0)).toBe(204);
    expect(await send({ signingKey: "sig_2", brand: "upstash" }, "Upstash-Signature")).toBe(204);
    const forged = [
      { signingKey: "sig_3" },
      { signingKey: "" },
      { bodyHash: hashBody(Buffer.from("other")) },
      { url: `${at}/other` },
      { now: Date.now() - 301_000 },
    ];
    expect(await Promise.all(forged.map((changes) => send(changes)))).toEqual(forged.map(() => 401));
    expect((await fetch(url, { method: "POST", body: "hello" })).status).toBe(401);
  });
});
