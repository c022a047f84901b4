import { frameHeaderBytes } from "./record.ts";

/**
 * Returns a copy of frames of the write-ahead log, without those whose page is written again up to the end of
 * the last whole transaction. Only that transaction keeps its end, because earlier ones lack pages. Frames
 * after it belong to a transaction that is not whole, and stay.
 */
export function leaveOutOverwritten(frames: Buffer, pageBytes: number): Buffer {
  const frameBytes = frameHeaderBytes + pageBytes;
  let end = 0;
  for (let at = 0; at < frames.length; at += frameBytes)
    if (frames.readUInt32BE(at + 4) !== 0) end = at + frameBytes;
  const newest = new Map<number, number>();
  for (let at = 0; at < end; at += frameBytes) newest.set(frames.readUInt32BE(at), at);
  const kept = Buffer.allocUnsafe(newest.size * frameBytes + frames.length - end);
  let length = 0;
  for (let at = 0; at < frames.length; at += frameBytes) {
    if (at < end && newest.get(frames.readUInt32BE(at)) !== at) continue;
    frames.copy(kept, length, at, at + frameBytes);
    if (at + frameBytes < end) kept.writeUInt32BE(0, length + 4);
    length += frameBytes;
  }
  return kept;
}
