import { elapsed, systemClock } from "../../../engine/clock/clock.ts";
import { ReplicaWriter, WriterRefused } from "./writer.ts";

// The program that writes a replica: a separate process, so that a target that hangs stops nothing else.
// It ends when its input ends.

const [folder = "", store = "", database = ""] = process.argv.slice(-3);
const neverAborted = new AbortController().signal;
/** How often the files are looked for, so that their loss is found although nothing is written. */
const checkPause = 10_000;
const pause = (time: number): Promise<void> => systemClock.sleep(systemClock.now() + time, neverAborted);
const report = (line: object): void => void process.stdout.write(`${JSON.stringify(line)}\n`);

// A terminal sends its signals to all processes. The server ends this one.
for (const signal of ["SIGINT", "SIGTERM", "SIGHUP"] as const) process.on(signal, () => undefined);
process.stdout.on("error", () => process.exit(1));

try {
  const writer = new ReplicaWriter({ folder, store, database, report, elapsed, pause });
  report({ ready: true });
  void checkAgain(writer);
  process.stdin.on("data", (bytes: Buffer) => {
    process.stdin.pause();
    void writer.receive(bytes).then(
      () => process.stdin.resume(),
      (error: unknown) => fail(error),
    );
  });
  process.stdin.on("end", () => {
    writer.flush();
    process.exit(0);
  });
} catch (error) {
  fail(error);
}

async function checkAgain(writer: ReplicaWriter): Promise<void> {
  for (;;) {
    await pause(checkPause);
    try {
      writer.check();
    } catch (error) {
      fail(error);
      process.exit();
    }
  }
}

function fail(error: unknown): void {
  const text = error instanceof Error ? error.message : String(error);
  report(error instanceof WriterRefused ? { refused: text } : { problem: text });
  process.exitCode = 1;
  process.stdin.destroy();
}
