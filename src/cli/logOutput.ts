import { writeSync } from "node:fs";
import { pino, type DestinationStream } from "pino";

/** At most so many bytes of the log wait for whoever reads it. Lines behind those are left out. */
const maxBufferedBytes = 4 * 1024 * 1024;

/**
 * Where the log goes: to a descriptor, beside the work. What cannot be written is nobody's trouble but the log's: a terminal that was closed
 * or a disk that is full does not end the server, nor keep it from ending. It is tried again with the next line.
 */
export function createLogOutput(descriptor: number): DestinationStream {
  const output = pino.destination({ fd: descriptor, sync: false, maxLength: maxBufferedBytes });
  let isLost = false;
  output.on("error", () => (isLost = true));
  output.on("write", () => (isLost = false));
  const flush = output.flushSync.bind(output);
  // Asked for as the process ends. It goes on for ever where nothing can be written.
  output.flushSync = () => {
    if (!isLost && isWritable(descriptor)) flush();
  };
  return output;
}

/** A terminal that is gone refuses even nothing. */
function isWritable(descriptor: number): boolean {
  try {
    writeSync(descriptor, "");
    return true;
  } catch {
    return false;
  }
}
