import { expect, test } from "vitest";
import type { TestUser } from "./clientTestServer.ts";
import { delayedDestination, startVerifyingDestination } from "./clientTestServer.ts";

/** Tests keys and tokens with the published client. */
export function accounts(createUser: () => TestUser): void {
  test("the token contains the id of its account", () => {
    const { token } = createUser();
    expect(JSON.parse(Buffer.from(token, "base64").toString())).toMatchObject({
      UserID: expect.stringMatching(/./),
    });
    expect(Buffer.from(token, "base64").toString("base64")).toBe(token);
  });

  test("a wrong token is refused with 401", async () => {
    const unknownName = createUser().clientWith({ token: "bm9ib2R5" });
    await expect(unknownName.publish({ url: "https://example.com" })).rejects.toMatchObject({ status: 401 });
    await expect(unknownName.queue().list()).rejects.toMatchObject({ status: 401 });
  });

  test("objects of other accounts are unknown", async () => {
    const { client: mine } = createUser();
    const { client: others } = createUser();
    await others.urlGroups.addEndpoints({ name: "group", endpoints: [{ url: "https://one.example" }] });
    await others.queue({ queueName: "line" }).upsert({});
    const { messageId } = await others.publish({
      ...delayedDestination,
      flowControl: { key: "shop", rate: 1 },
    });
    const { scheduleId } = await others.schedules.create({
      destination: "https://example.com",
      cron: "0 0 1 1 *",
    });
    const unknown = [
      () => mine.urlGroups.get("group"),
      () => mine.queue({ queueName: "line" }).get(),
      () => mine.messages.get(messageId),
      () => mine.messages.cancel(messageId),
      () => mine.flowControl.get("shop"),
      () => mine.schedules.get(scheduleId),
      () => mine.schedules.pause({ schedule: scheduleId }),
      () => mine.publish({ urlGroup: "group" }),
    ];
    for (const ask of unknown) await expect(ask()).rejects.toMatchObject({ status: 404 });
    await mine.queue({ queueName: "line" }).delete();
    await mine.schedules.delete(scheduleId);
    expect(await mine.messages.cancel({ all: true })).toEqual({ cancelled: 0 });
    expect((await mine.logs()).logs).toEqual([]);
    expect(await others.queue({ queueName: "line" }).get()).toMatchObject({ name: "line" });
    expect(await others.schedules.get(scheduleId)).toMatchObject({ scheduleId, isPaused: false });
    expect(await others.messages.cancel({ all: true })).toEqual({ cancelled: 1 });
  });

  test("a Receiver with the keys from before a rotation accepts signatures from after it", async () => {
    const user = createUser();
    const destination = await startVerifyingDestination(user);
    const rotated = await fetch(`${user.url}/v2/keys/rotate`, {
      method: "POST",
      headers: { authorization: `Bearer ${user.token}` },
    });
    expect(rotated.status).toBe(200);
    await user.client.publish({ url: destination.url, body: "signed anew" });
    expect(await destination.first()).toMatchObject({ body: Buffer.from("signed anew") });
  });
}
