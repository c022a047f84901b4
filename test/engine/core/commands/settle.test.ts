import { beforeEach, describe, expect, test } from "vitest";
import { CommandRunner, bytes, callbackTo, makeInput, noCapacity, noon } from "../commandRunner.ts";

const second = 1000;
const minute = 60 * second;

let broker: CommandRunner;
beforeEach(async () => {
  broker = await CommandRunner.open();
});

/** Moves the clock to the due time of the message, and claims it. */
async function sendAgain(id: string): Promise<number> {
  const wait = (broker.state(id)?.dueAt ?? 0) - broker.now;
  broker.now += wait;
  await broker.run("claim", { limit: 10 });
  expect(broker.deliveries.map(({ message }) => message.id)).toEqual([id]);
  return wait;
}

const bodyOf = ({ body }: { body: Uint8Array }): Record<string, unknown> =>
  JSON.parse(new TextDecoder().decode(body)) as Record<string, unknown>;

describe("three retries", () => {
  test("mean four attempts, after 12.182 s, 148.413 s and 1808.042 s, then a dead letter", async () => {
    const id = await broker.publish();
    const waits = [];
    for (const attempt of [1, 2, 3]) {
      expect(await broker.settle(id)).toBe("retry");
      waits.push(await sendAgain(id));
      expect(broker.deliveries).toMatchObject([{ attempt }]);
    }
    expect(waits).toEqual([12_182, 148_413, 1_808_042]);
    expect(
      await broker.settle(id, { status: 503, headers: [["X-Why", "tired"]], body: bytes("sorry") }),
    ).toBe("failed");
    expect(broker.log(id)).toBe("ERROR RETRY ACTIVE ERROR RETRY ACTIVE ERROR RETRY ACTIVE ERROR FAILED");
    expect(broker.state(id)).toBeUndefined();
    expect(broker.deadLetters).toMatchObject([
      {
        messageId: id,
        status: 503,
        headers: [["X-Why", "tired"]],
        body: bytes("sorry"),
        error: null,
        retried: 3,
        failureCallback: null,
      },
    ]);
    expect(broker.logRows(id).at(-1)).toMatchObject({ dlqId: broker.deadLetters[0]?.id, status: 503 });
  });

  test("are not used up by a success", async () => {
    const id = await broker.publish();
    await broker.settle(id);
    await sendAgain(id);
    expect(await broker.settle(id, { status: 200 })).toBe("delivered");
    expect(broker.log(id)).toBe("ERROR RETRY ACTIVE DELIVERED");
    expect(broker.deadLetters).toEqual([]);
  });
});

test("no response counts like a failed one, and the log has the reason", async () => {
  const id = await broker.publish({ retries: 1, retryDelay: "500" });
  await broker.settle(id, { status: null, error: "connection refused" });
  expect(broker.state(id)).toMatchObject({
    state: "pending",
    attempts: 1,
    lostAttempts: 0,
    leasedBy: null,
    dueAt: noon + 500,
  });
  expect(broker.logRows(id)).toMatchObject([
    { states: ["ERROR", "RETRY"], error: "connection refused", nextDueAt: noon + 500 },
  ]);
});

test("a destination can forbid further attempts", async () => {
  const id = await broker.publish();
  expect(await broker.settle(id, { status: 489, headers: [["Svc-Nonretryable-Error", "true"]] })).toBe(
    "failed",
  );
  expect(broker.deadLetters).toMatchObject([{ status: 489, retried: 0 }]);
});

test("a lost lease uses up no retry", async () => {
  const id = await broker.publish({ retries: 1, retryDelay: "0" });
  broker.now += 30 * second;
  await broker.run("claim", { limit: 1 });
  expect(await broker.settle(id)).toBe("retry");
  await sendAgain(id);
  expect(broker.deliveries).toMatchObject([{ attempt: 2 }]);
  expect(await broker.settle(id)).toBe("failed");
  expect(broker.deadLetters).toMatchObject([{ retried: 1 }]);
});

describe("a report", () => {
  test("changes nothing if it comes a second time", async () => {
    const id = await broker.publish();
    await broker.settle(id, { attempt: 0 });
    expect(await broker.settle(id, { attempt: 0 })).toBe("late");
    await sendAgain(id);
    expect(await broker.settle(id, { attempt: 0, status: 200 })).toBe("late");
    expect(broker.state(id)).toMatchObject({ state: "active", attempts: 1 });
  });

  test("changes nothing if another node has the lease", async () => {
    const id = await broker.publish();
    broker.now += 30 * second;
    broker.node = "nod_b";
    await broker.run("claim", { limit: 1 });
    broker.node = "nod_a";
    expect(await broker.settle(id, { attempt: 0, status: 200 })).toBe("late");
    expect(await broker.settle(id, { attempt: 1, status: 200 })).toBe("late");
    expect(broker.state(id)).toMatchObject({ state: "active", leasedBy: "nod_b" });
  });

  test("counts if the lease has expired but was not claimed since", async () => {
    const id = await broker.publish();
    broker.now += 10 * minute;
    expect(await broker.settle(id, { status: 200 })).toBe("delivered");
  });
});

describe("a lease", () => {
  const held = (messageId: string) => ({ leases: [{ account: "acme", messageId, attempt: 0 }] });

  test("is renewed for 30 seconds from now", async () => {
    const id = await broker.publish();
    broker.now += 20 * second;
    expect(await broker.run("renew", held(id))).toEqual({ renewed: 1 });
    expect(broker.state(id)).toMatchObject({ state: "active", dueAt: noon + 50 * second });
    broker.node = "nod_b";
    expect(await broker.run("renew", held(id))).toEqual({ renewed: 0 });
  });

  test("that is returned is due at once, and does not count as an attempt", async () => {
    const id = await broker.publish();
    expect(await broker.run("returnLeases", held(id))).toEqual({ returned: 1 });
    expect(broker.state(id)).toMatchObject({
      state: "pending",
      dueAt: noon,
      attempts: 0,
      lostAttempts: 0,
      leasedBy: null,
    });
    expect(await broker.run("returnLeases", held(id))).toEqual({ returned: 0 });
    expect(await broker.settle(id, { status: 200 })).toBe("late");
  });
});

describe("a callback", () => {
  test("reports every attempt in this exact format", async () => {
    const input = {
      callback: { ...callbackTo("https://told.example/x"), headers: [["X-Mine", "1"]] as const },
      headers: [
        ["X-Id", "7"],
        ["X-Id", "8"],
      ] as const,
    };
    const id = await broker.publish({
      ...input,
      retries: 1,
      retryDelay: "0",
      body: bytes("hello"),
      callerIp: "192.0.2.1",
      brand: "upstash",
    });
    await broker.settle(id, {
      status: 500,
      headers: [
        ["X-Answer", "a"],
        ["X-Answer", "b"],
      ],
      body: bytes("no"),
    });
    const [first] = broker.listReporters(id);
    expect(first).toMatchObject({
      url: "https://told.example/x",
      method: "POST",
      brand: "upstash",
      retries: 1,
      headers: [
        ["Content-Type", "application/json"],
        ["X-Mine", "1"],
      ],
    });
    const body = {
      status: 500,
      header: { "X-Answer": ["a", "b"] },
      body: "bm8=",
      retried: 0,
      maxRetries: 1,
      sourceMessageId: id,
      url: "https://shop.example/hook",
      method: "POST",
      sourceHeader: { "X-Id": ["7", "8"] },
      sourceBody: "aGVsbG8=",
      notBefore: noon,
      createdAt: noon,
      callerIP: "192.0.2.1",
    };
    expect(first && bodyOf(first)).toEqual(body);

    await broker.run("claim", { limit: 10 });
    await broker.settle(id, { status: 200, body: bytes("") });
    const [, second] = broker.listReporters(id);
    expect(second && bodyOf(second)).toEqual({ ...body, status: 200, header: {}, body: "", retried: 1 });
  });

  test("is sent after its delay, with its labels", async () => {
    const callback = { ...callbackTo("https://told.example"), delay: minute, labels: ["a", "b"] };
    const id = await broker.publish({ callback });
    const failing = await broker.publish({ retries: 0, failureCallback: { ...callback, delay: 2 * minute } });
    broker.now += second;
    await broker.settle(id, { status: 200 });
    await broker.settle(failing, { status: 500 });
    for (const [one, delay] of [
      [id, minute],
      [failing, 2 * minute],
    ] as const) {
      const [told] = broker.listReporters(one);
      expect(told).toMatchObject({ notBefore: broker.now + delay, startedAtOnce: false, labels: ["a", "b"] });
      expect(broker.state(told?.id ?? "")).toMatchObject({ state: "pending", dueAt: broker.now + delay });
    }
  });

  test("names the schedule, group and endpoint of the message", async () => {
    const callback = callbackTo("https://told.example");
    const plain = await broker.publish({ callback });
    const id = await broker.publish({ callback, scheduleId: "scd_1", group: null, endpoint: "first" });
    for (const one of [plain, id]) await broker.settle(one, { status: 200 });
    const told = [plain, id]
      .map((one) => broker.listReporters(one)[0])
      .map((teller) => teller && bodyOf(teller));
    expect(told[0]).not.toHaveProperty("scheduleId");
    expect(told[0]).not.toHaveProperty("topicName");
    expect(told[1]).toMatchObject({ scheduleId: "scd_1", endpointName: "first" });
  });

  test.each(["svc", "upstash"] as const)(
    "reports status -1 and the error if there was no response: brand %s",
    async (brand) => {
      const callback = callbackTo("https://told.example");
      const id = await broker.publish({ brand, retries: 0, callback, failureCallback: callback });
      await broker.settle(id, { status: null, error: "timed out", body: bytes("") });
      const expected = { status: -1, body: Buffer.from("timed out").toString("base64") };
      expect(broker.listReporters(id).map(bodyOf)).toMatchObject([expected, expected]);
    },
  );

  test("keeps its own content type", async () => {
    const id = await broker.publish({
      callback: { ...callbackTo("https://told.example"), headers: [["Content-Type", "text/x"]] },
    });
    await broker.settle(id, { status: 200 });
    expect(broker.listReporters(id)).toMatchObject([{ headers: [["Content-Type", "text/x"]] }]);
  });

  test("hides its body if any part of the original is hidden, because it contains all of it", async () => {
    const redaction = { body: false, headers: ["Authorization"] };
    const id = await broker.publish({ redaction, callback: callbackTo("https://told.example") });
    await broker.settle(id, { status: 200 });
    expect(broker.listReporters(id)).toMatchObject([
      { redaction: { body: true, headers: ["Authorization"] } },
    ]);
  });

  test("waits behind messages in the waitlist of its host", async () => {
    const id = await broker.publish({ callback: callbackTo("https://told.example") });
    const { capacity } = broker;
    broker.capacity = noCapacity;
    await broker.publish({ url: "https://told.example" });
    await broker.run("claim", { limit: 10 });
    broker.capacity = capacity;
    await broker.settle(id, { status: 200 });
    expect(broker.deliveries).toEqual([]);
    expect(broker.listReporters(id).map(({ id }) => broker.state(id)?.state)).toEqual(["pending"]);
  });

  test("is delivered by the same batch", async () => {
    const id = await broker.publish({ callback: callbackTo("https://told.example") });
    await broker.settle(id, { status: 200 });
    expect(broker.deliveries).toMatchObject([{ message: { url: "https://told.example" }, attempt: 0 }]);
  });
});

describe("a failure callback", () => {
  const failed = async (): Promise<{ id: string; told: string }> => {
    const id = await broker.publish({
      retries: 0,
      failureCallback: { ...callbackTo("https://told.example"), retries: 0 },
    });
    await broker.settle(id);
    const [told] = broker.listReporters(id);
    return { id, told: told?.id ?? "" };
  };

  test("is sent once, after the last attempt, with the id of the dead letter", async () => {
    const id = await broker.publish({
      retries: 1,
      retryDelay: "0",
      failureCallback: callbackTo("https://told.example"),
    });
    await broker.settle(id);
    expect(broker.listReporters(id)).toEqual([]);
    await broker.run("claim", { limit: 1 });
    await broker.settle(id);
    const [deadLetter] = broker.deadLetters;
    const [told, ...more] = broker.listReporters(id);
    expect(more).toEqual([]);
    expect(told?.reportsOn).toEqual({ kind: "failureCallback", messageId: id, dlqId: deadLetter?.id });
    expect(told && bodyOf(told)).toMatchObject({
      dlqId: deadLetter?.id,
      retried: 1,
      maxRetries: 1,
      status: 500,
    });
    expect(deadLetter?.failureCallback).toEqual({ state: "CALLBACK_INPROGRESS" });
  });

  test("is not sent for a delivered message", async () => {
    const id = await broker.publish({ failureCallback: callbackTo("https://told.example") });
    await broker.settle(id, { status: 204 });
    expect(broker.listReporters(id)).toEqual([]);
  });

  test("that is delivered is recorded in the dead letter", async () => {
    const { told } = await failed();
    await broker.settle(told, { status: 200, headers: [["X-A", "b"]], body: bytes("thanks") });
    expect(broker.deadLetters[0]?.failureCallback).toEqual({
      state: "CALLBACK_SUCCESS",
      responseStatus: 200,
      responseBody: "thanks",
      responseHeaders: [["X-A", "b"]],
    });
  });

  test("that fails is recorded in the dead letter, and is a dead letter itself", async () => {
    const { id, told } = await failed();
    await broker.settle(told, { status: 404, body: bytes("who?") });
    const [deadLetter, other] = broker.deadLetters;
    expect(deadLetter).toMatchObject({
      messageId: id,
      failureCallback: { state: "CALLBACK_FAIL", responseStatus: 404, responseBody: "who?" },
    });
    expect(other).toMatchObject({ messageId: told, failureCallback: null });
  });

  test("that is cancelled is recorded in the dead letter", async () => {
    const { told } = await failed();
    await broker.run("cancel", { account: "acme", messageIds: [told] });
    expect(broker.deadLetters[0]?.failureCallback).toEqual({ state: "CALLBACK_CANCELED" });
  });
});

test("an outcome of an unknown message is late", async () => {
  await broker.run("publish", { account: "acme", inputs: [makeInput()] });
  expect(await broker.settle("msg_unknown")).toBe("late");
});
