import { writeSync } from "node:fs";
import { pino, type DestinationStream } from "pino";

/** The maximum number of bytes of the log that wait to be written. Further lines are dropped. */
const maxBufferedBytes = 4 * 1024 * 1024;

/**
 * Returns the output of the log, which writes asynchronously. An error affects only the log: a closed
 * terminal or a full disk neither ends the server nor keeps it from ending. After an error, the next line is
 * written as usual.
 */
export function createLogOutput(descriptor: number): DestinationStream {
  const output = pino.destination({ fd: descriptor, sync: false, maxLength: maxBufferedBytes });
  let isLost = false;
  output.on("error", () => (isLost = true));
  output.on("write", () => (isLost = false));
  const flush = output.flushSync.bind(output);
  // Pino calls this when the process ends. Without the check, it would never return if nothing can be
  // written.
  output.flushSync = () => {
    if (!isLost && isWritable(descriptor)) flush();
  };
  return output;
}

/** Reports whether a descriptor can be written. A closed terminal refuses even an empty write. */
function isWritable(descriptor: number): boolean {
  try {
    writeSync(descriptor, "");
    return true;
  } catch {
    return false;
  }
}
