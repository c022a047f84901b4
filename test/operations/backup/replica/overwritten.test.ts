import { expect, test } from "vitest";
import { leaveOutOverwritten } from "../../../../src/operations/backup/replica/overwritten.ts";
import { frameHeaderBytes } from "../../../../src/operations/backup/replica/record.ts";

const pageBytes = 16;

/** A frame: the page, its content, and the pages of the file if the frame ends a transaction. */
type Frame = [page: number, content: string, end?: number];

const toBytes = (frames: readonly Frame[]): Buffer =>
  Buffer.concat(
    frames.map(([page, content, end = 0]) => {
      const frame = Buffer.alloc(frameHeaderBytes + pageBytes);
      frame.writeUInt32BE(page, 0);
      frame.writeUInt32BE(end, 4);
      frame.write(content, frameHeaderBytes);
      return frame;
    }),
  );

test.each<{ name: string; frames: Frame[]; kept: Frame[] }>([
  { name: "nothing", frames: [], kept: [] },
  {
    name: "one transaction",
    frames: [
      [1, "a"],
      [2, "b", 2],
    ],
    kept: [
      [1, "a"],
      [2, "b", 2],
    ],
  },
  {
    name: "a page that a later transaction writes again",
    frames: [
      [1, "a"],
      [2, "b", 2],
      [2, "c", 2],
    ],
    kept: [
      [1, "a"],
      [2, "c", 2],
    ],
  },
  {
    name: "the end of a transaction whose pages are all needed",
    frames: [
      [1, "a", 5],
      [2, "b", 6],
    ],
    kept: [
      [1, "a"],
      [2, "b", 6],
    ],
  },
  {
    name: "a page that its own transaction writes twice",
    frames: [
      [1, "a"],
      [1, "b"],
      [2, "c", 2],
    ],
    kept: [
      [1, "b"],
      [2, "c", 2],
    ],
  },
  {
    name: "a transaction that is not whole",
    frames: [
      [1, "a", 1],
      [1, "b"],
      [2, "c"],
      [1, "d"],
    ],
    kept: [
      [1, "a", 1],
      [1, "b"],
      [2, "c"],
      [1, "d"],
    ],
  },
  {
    name: "a part of a transaction",
    frames: [
      [1, "a"],
      [1, "b"],
    ],
    kept: [
      [1, "a"],
      [1, "b"],
    ],
  },
])("$name", ({ frames, kept }) => {
  const bytes = toBytes(frames);
  const before = Buffer.from(bytes);
  expect(leaveOutOverwritten(bytes, pageBytes)).toEqual(toBytes(kept));
  expect(bytes).toEqual(before);
});
