import { afterEach, beforeEach, expect, test, vi } from "vitest";
import { fc } from "../../../seeds.ts";
import { laneName } from "../../../../src/engine/core/admission/capacity.ts";
import { BodyByteBudget } from "../../../../src/engine/delivery/http/bodyBytes.ts";

// Responses that hang, or arrive, while others wait for their memory.

const mebibyte = 1024 * 1024;
const second = 1000;

beforeEach(() => void vi.useFakeTimers());
afterEach(() => void vi.useRealTimers());

type Arriving = { ended: "whole" | "stalled" | null; hasRoom: boolean };

/** Begins a response that waits for room, then receives this many bytes each second. */
function respond(
  bytes: BodyByteBudget,
  [account, host]: [account: string, host: string],
  { size, rate, beginsWith = 0 }: { size: number; rate: number; beginsWith?: number },
): Arriving {
  const arriving: Arriving = { ended: null, hasRoom: false };
  const room = bytes.openRoom(laneName(account, host));
  const end = (how: "whole" | "stalled"): void => {
    clearInterval(timer);
    arriving.ended = how;
    stopWaiting();
    room.close();
  };
  const body = { size: 0, stall: () => end("stalled") };
  const timer = setInterval(() => {
    if (!arriving.hasRoom) return;
    body.size = Math.min(size, body.size + rate);
    if (body.size === size) end("whole");
  }, second);
  room.watch(body);
  let stopWaiting = (): void => undefined;
  stopWaiting = room.wait(size, () => {
    arriving.hasRoom = true;
    body.size = beginsWith;
  });
  return arriving;
}

const hung = { size: 8 * mebibyte, rate: 0 };

test("hosts that hang lose their room within seconds, and the next host goes first", () => {
  const bytes = new BodyByteBudget(256 * mebibyte);
  const all = Array.from({ length: 100 }, (_, number) =>
    respond(bytes, ["acme", "hangs.example"], { ...hung, beginsWith: (number % 2) * (8 * mebibyte - 1) }),
  );
  expect(all.filter(({ hasRoom }) => hasRoom)).toHaveLength(28);
  const shop = respond(bytes, ["acme", "shop.example"], { size: mebibyte, rate: mebibyte });
  expect(shop.hasRoom).toBe(false);
  vi.advanceTimersByTime(8 * second);
  expect(shop.ended).toBe("whole");
  vi.advanceTimersByTime(60 * second);
  // The last of them have room, and no other response waits for it.
  expect(all.filter(({ ended }) => ended === null).length).toBeGreaterThan(0);
  expect(bytes.free).toBeGreaterThanOrEqual(32 * mebibyte);
});

test("a response that hangs keeps its room while no other waits", () => {
  const bytes = new BodyByteBudget(256 * mebibyte);
  const alone = respond(bytes, ["acme", "hangs.example"], hung);
  vi.advanceTimersByTime(600 * second);
  expect(alone).toEqual({ ended: null, hasRoom: true });
});

test("an account that has used up its share disturbs no account that holds little", () => {
  const bytes = new BodyByteBudget(256 * mebibyte);
  const slow = respond(bytes, ["other", "slow.example"], { size: 8 * mebibyte, rate: 1024 });
  for (let number = 0; number < 100; number++) respond(bytes, ["acme", `h${number}.example`], hung);
  vi.advanceTimersByTime(60 * second);
  expect(slow.ended).toBe(null);
});

test("an account that uses its share for bodies that it sends disturbs no other account", () => {
  const bytes = new BodyByteBudget(256 * mebibyte);
  const slow = respond(bytes, ["other", "slow.example"], { size: 120 * 1024, rate: 4 * 1024 });
  bytes.count(laneName("acme", "large.example"), 192 * mebibyte);
  for (let number = 0; number < 24; number++)
    respond(bytes, ["acme", `h${number}.example`], { size: 1.5 * mebibyte, rate: 9 * 1024 });
  vi.advanceTimersByTime(31 * second);
  expect(slow.ended).toBe("whole");
});

test("responses that continue all arrive, although others hang, within the memory", () => {
  const response = fc.record({
    account: fc.constantFrom("a", "b", "c"),
    host: fc.constantFrom("x", "y", "z"),
    size: fc.integer({ min: 1, max: 24 }),
    hangs: fc.boolean(),
    after: fc.integer({ min: 0, max: 3 }),
  });
  fc.assert(
    fc.property(fc.array(response, { maxLength: 40 }), (responses) => {
      vi.clearAllTimers();
      const bytes = new BodyByteBudget(16 * mebibyte);
      const continuing: Arriving[] = [];
      for (const { account, host, size, hangs, after } of responses) {
        vi.advanceTimersByTime(after * second);
        const rate = hangs ? 0 : mebibyte;
        const arriving = respond(bytes, [account, host], { size: size * mebibyte, rate });
        if (!hangs) continuing.push(arriving);
        // All but one response that always gets room.
        expect(bytes.free).toBeGreaterThanOrEqual(-24 * mebibyte);
      }
      // Each response takes at most 24 s with room, or 8 s if it hangs.
      vi.advanceTimersByTime(41 * 24 * second);
      for (const { ended } of continuing) expect(ended).toBe("whole");
    }),
  );
});
