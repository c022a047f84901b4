import type { RandomCommand } from "../../engine/store/randomCommands.ts";
import { bytes } from "../../engine/store/storeFixture.ts";

/** Returns commands about a source. */
export function makeSourceCommands(
  named: { account: string; id: string },
  { random, isRare }: { random(): number; isRare(): boolean },
): RandomCommand[] {
  const { account } = named;
  const setUp = {
    name: "n",
    destination: "https://one.example/",
    headers: [],
    verification: null,
    deduplicate: false,
    paused: false,
    keepsRejected: true,
  };
  const whole = {
    url: "https://queue.example/",
    secret: "s",
    headers: [],
    body: bytes("whole"),
    callerIp: null,
  };
  const call = {
    others: 0,
    reason: "unsigned",
    method: "POST",
    size: 9,
    body: bytes("no\0"),
    headers: [["X", "y"]] as const,
    callerIp: null,
  };
  return [
    { name: "createSource", input: { account, ...setUp, secretHash: `secret ${random()}` } },
    { name: "changeSource", input: { ...named, change: { paused: isRare() } } },
    { name: "keepRejection", input: { ...named, ...call } },
    { name: "keepRejection", input: { ...named, ...call, whole } },
    { name: "noteAcceptance", input: named },
    { name: "deleteSource", input: named },
  ];
}
