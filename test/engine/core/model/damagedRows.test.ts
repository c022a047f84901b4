import { expect, test } from "vitest";
import { noBytes } from "../../../../src/engine/core/values/basics.ts";
import {
  damagedMessage,
  damagedUrlGroup,
  damagedDeadLetter,
  damagedSchedule,
  damagedStep,
} from "../../../../src/engine/core/model/damagedRows.ts";
import { readIdTime } from "../../../../src/engine/core/values/ids.ts";
import { CommandRunner } from "../commandRunner.ts";

test("only the id of a damaged message is known, and everything else is hidden", async () => {
  const id = await (await CommandRunner.open()).publish();
  expect(damagedMessage({ account: "acme", id })).toEqual({
    account: "acme",
    id,
    brand: "svc",
    url: "",
    method: "POST",
    headers: [],
    body: noBytes,
    retries: 0,
    retryDelay: null,
    timeout: 0,
    callback: null,
    failureCallback: null,
    flowControl: null,
    redaction: { body: true, headers: true },
    labels: [],
    callerIp: null,
    reportsOn: null,
    deduplication: null,
    group: null,
    endpoint: null,
    queue: null,
    scheduleId: null,
    startedAtOnce: false,
    createdAt: readIdTime(id),
    notBefore: readIdTime(id),
    damaged: true,
  });
});

test("only the keys of other damaged rows are known", () => {
  expect(damagedDeadLetter({ account: "acme", id: "dlq_1", messageId: "msg_1" })).toEqual({
    account: "acme",
    id: "dlq_1",
    messageId: "msg_1",
    status: null,
    headers: [],
    body: noBytes,
    error: "the stored dead letter is damaged",
    retried: 0,
    failureCallback: null,
    tags: [],
    damaged: true,
  });
  expect(damagedUrlGroup({ account: "acme", name: "g" })).toEqual({
    account: "acme",
    name: "g",
    createdAt: 0,
    updatedAt: 0,
    endpoints: [],
    headers: [],
    damaged: true,
  });
  expect(damagedStep({ account: "acme", id: "run_1/r7", position: 7 })).toEqual({
    account: "acme",
    id: "run_1/r7",
    run: "run_1",
    position: 7,
    messageId: "",
    callType: "step",
    createdAt: 0,
    head: null,
    url: "",
    headers: [],
    body: noBytes,
    damaged: true,
  });
});

test("a damaged schedule is paused if it had no time to fire", () => {
  const schedule = damagedSchedule({ account: "acme", id: "scd_1", dueAt: 5 });
  expect(schedule).toMatchObject({
    cron: "",
    dueAt: 5,
    paused: false,
    lastAt: null,
    lastMessages: [],
    createdAt: 0,
    damaged: true,
  });
  expect(schedule.messageInput).toMatchObject({
    url: "",
    retries: null,
    timeout: null,
    delay: null,
    notBefore: null,
  });
  expect(damagedSchedule({ account: "acme", id: "scd_1", dueAt: null })).toMatchObject({
    dueAt: null,
    paused: true,
  });
});
