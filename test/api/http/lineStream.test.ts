import { describe, expect, test } from "vitest";
import { LineStream } from "../../../src/api/http/lineStream.ts";

/** Reads all that a stream has now. */
function readNow(stream: LineStream): unknown[] {
  let text = "";
  for (let piece = stream.read(); piece !== null; piece = stream.read()) text += String(piece);
  return text.split("\n").flatMap((line) => (line === "" ? [] : [JSON.parse(line) as unknown]));
}

const offer = (stream: LineStream, ...times: number[]): void => {
  for (const time of times) stream.offer({ time, text: JSON.stringify({ time }) });
};
const laterTurn = (): Promise<void> => new Promise((resolve) => setImmediate(resolve));

describe("a stream of lines", () => {
  test("passes lines on in order", async () => {
    const stream = new LineStream(1_000);
    offer(stream, 1, 2);
    expect(readNow(stream)).toEqual([{ time: 1 }, { time: 2 }]);
    offer(stream, 3);
    await laterTurn();
    expect(readNow(stream)).toEqual([{ time: 3 }]);
  });

  test("counts the lines that do not fit, and shows the number between the lines around them", async () => {
    const stream = new LineStream(36);
    offer(stream, 1, 2, 3, 4, 5, 6);
    expect(readNow(stream)).toEqual([
      { time: 1 },
      { time: 2 },
      { time: 3 },
      { dropped: 3, fromDate: 4, toDate: 6 },
    ]);
    offer(stream, 7);
    await laterTurn();
    expect(readNow(stream)).toEqual([{ time: 7 }]);
  });

  test("shows that skipped lines are not counted", () => {
    const stream = new LineStream(12);
    offer(stream, 1, 2);
    stream.skip(3, 9);
    expect(readNow(stream)).toEqual([{ time: 1 }, { dropped: null, fromDate: 2, toDate: 9 }]);
  });

  test("leaves a sign of life out while other lines wait", async () => {
    const stream = new LineStream(100);
    offer(stream, 1);
    stream.beat('{"heartbeat":1}');
    expect(readNow(stream)).toEqual([{ time: 1 }]);
    await laterTurn();
    stream.beat('{"heartbeat":2}');
    await laterTurn();
    expect(readNow(stream)).toEqual([{ heartbeat: 2 }]);
  });

  test("ends with its last line, without those that wait", async () => {
    const stream = new LineStream(100);
    let isEnding = false;
    stream.once("last", () => (isEnding = true));
    offer(stream, 1);
    stream.finish('{"ended":"why"}');
    offer(stream, 2);
    stream.finish('{"ended":"again"}');
    expect(readNow(stream)).toEqual([{ ended: "why" }]);
    await laterTurn();
    expect([isEnding, stream.readableEnded]).toEqual([true, true]);
  });
});
