import fs from "node:fs";
import { syncBuiltinESMExports } from "node:module";

// Preloaded into a server by `--import`: the disk fails while the file FAILING_DISK exists. A server syncs on
// its main thread if the disk is fast, and elsewhere if it is slow (docs/decisions/0036). FAILING_WAY says
// which of the two fails. For `elsewhere` the main thread is made slow, so that the server does not use it.

const { fdatasync, fdatasyncSync } = fs;
const { FAILING_DISK = "", FAILING_WAY = "" } = process.env;
const failure = (): Error =>
  Object.assign(new Error(`EIO: i/o error, fdatasync, ${FAILING_WAY}`), { code: "EIO" });
const fails = (way: string): boolean => way === FAILING_WAY && fs.existsSync(FAILING_DISK);
const delaySync = (): void => void Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0, 2);

Object.assign(fs, {
  fdatasync: (file: number, done: (error: Error | null) => void): void =>
    fails("elsewhere") ? done(failure()) : fdatasync(file, done),
  fdatasyncSync: (file: number): void => {
    if (fails("here")) throw failure();
    fdatasyncSync(file);
    if (FAILING_WAY === "elsewhere") delaySync();
  },
});
syncBuiltinESMExports();
