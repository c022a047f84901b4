import { writeSync } from "node:fs";
import { pino, type DestinationStream } from "pino";

/** The most bytes of the log that wait to be written. Further lines are dropped. */
const maxBufferedBytes = 4 * 1024 * 1024;

/**
 * Returns the output of the log. It writes asynchronously. An error affects only the log: a closed terminal
 * or a full disk neither ends the server nor keeps it from ending. Writing is tried again with the next line.
 */
export function createLogOutput(descriptor: number): DestinationStream {
  const output = pino.destination({ fd: descriptor, sync: false, maxLength: maxBufferedBytes });
  let isLost = false;
  output.on("error", () => (isLost = true));
  output.on("write", () => (isLost = false));
  const flush = output.flushSync.bind(output);
  // Called as the process ends. It never returns if nothing can be written.
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
