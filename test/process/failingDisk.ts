import fs from "node:fs";
import { syncBuiltinESMExports } from "node:module";

// Loaded into a server by `--import`: the disk fails to keep what is written as long as the file FAILING_DISK is there.

const { fdatasync } = fs;
const failure = (): Error => Object.assign(new Error("EIO: i/o error, fdatasync"), { code: "EIO" });
const failing = (file: number, done: (error: Error | null) => void): void =>
  fs.existsSync(process.env.FAILING_DISK ?? "") ? done(failure()) : fdatasync(file, done);
Object.assign(fs, { fdatasync: failing });
syncBuiltinESMExports();
