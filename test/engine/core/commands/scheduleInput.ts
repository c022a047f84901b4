import type { ScheduleInput } from "../../../../src/engine/core/commands/schedule.ts";
import type { MessageInput } from "../../../../src/engine/core/model/message.ts";
import { bytes, makeInput } from "../commandRunner.ts";

/** The settings of a schedule that a test gives. */
export type ScheduleFields = Partial<Omit<ScheduleInput, "messageInput">> & {
  messageInput?: Partial<MessageInput>;
};

/** Returns a schedule `tick` that fires every five minutes, with the given settings. */
export function makeScheduleInput({ messageInput, ...over }: ScheduleFields = {}): ScheduleInput {
  const { body: _, ...rest } = makeInput(messageInput);
  return {
    account: "acme",
    id: "tick",
    cron: "*/5 * * * *",
    messageInput: rest,
    body: bytes("hello"),
    ...over,
  };
}
