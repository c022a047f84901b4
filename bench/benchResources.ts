import { type ChildProcess, fork, spawn } from "node:child_process";
import { mkdirSync, mkdtempSync, openSync, closeSync, rmdirSync, rmSync } from "node:fs";
import { join, resolve } from "node:path";
import { fileURLToPath } from "node:url";
import { type BenchHandlers, BenchProcess } from "./benchProcess.ts";

/** The folder of the repository. */
export const root = fileURLToPath(new URL("..", import.meta.url));

/** Which side a process belongs to. If processes are pinned, each side has its own core. */
export type Side = "server" | "others";
const cores = { server: "0", others: "1" } as const;

/**
 * Everything that a bench starts or writes, so that all of it is removed at the end, also after a failure or
 * a signal.
 */
export class BenchResources {
  readonly #dataRoot: string;
  readonly #pinned: boolean;
  readonly #children = new Set<ChildProcess>();
  #folder: string | null = null;

  constructor({ dataRoot, pinned }: { dataRoot: string; pinned: boolean }) {
    this.#dataRoot = resolve(root, dataRoot);
    this.#pinned = pinned;
    process.on("exit", () => this.#removeAll());
    for (const signal of ["SIGINT", "SIGTERM", "SIGHUP"] as const)
      process.on(signal, () => process.exit(130));
  }

  /** Returns a fresh folder of this run, in the data root. */
  folder(name: string): string {
    if (this.#folder === null) {
      mkdirSync(this.#dataRoot, { recursive: true });
      this.#folder = mkdtempSync(join(this.#dataRoot, "bench-"));
    }
    const path = join(this.#folder, name);
    mkdirSync(path, { recursive: true });
    return path;
  }

  /**
   * Starts a part of the bench from its file in this folder. `within` is the start of a command that runs it,
   * for example in a network namespace.
   */
  part<A extends BenchHandlers>(name: string, side: Side, within: readonly string[] = []): BenchProcess<A> {
    const file = fileURLToPath(new URL(`./${name}.ts`, import.meta.url));
    const pin = this.#pinned ? ["taskset", "-c", cores[side]] : [];
    const [execPath = "", ...execArgv] = [...pin, ...within, process.execPath, ...process.execArgv];
    return new BenchProcess<A>(name, this.#track(fork(file, { execPath, execArgv })));
  }

  /** Starts a server as its own process. Its output goes to the file `log`. */
  server(command: readonly string[], log: string, home = root): ChildProcess {
    const [program = "", ...rest] = this.#pinned ? ["taskset", "-c", cores.server, ...command] : command;
    const out = openSync(log, "a");
    const child = spawn(program, rest, { cwd: home, stdio: ["ignore", out, out] });
    closeSync(out);
    return this.#track(child);
  }

  /** Starts processes. If that fails, ends those that it has started, so that they do not disturb others. */
  async attempt<T>(start: () => Promise<T>): Promise<T> {
    const before = new Set(this.#children);
    try {
      return await start();
    } catch (error) {
      const started = [...this.#children].filter((child) => !before.has(child));
      await Promise.all(started.map((child) => end(child, "SIGKILL")));
      throw error;
    }
  }

  #track<C extends ChildProcess>(child: C): C {
    this.#children.add(child);
    child.once("exit", () => this.#children.delete(child));
    return child;
  }

  #removeAll(): void {
    for (const child of this.#children) child.kill("SIGKILL");
    if (this.#folder !== null)
      rmSync(this.#folder, { recursive: true, force: true, maxRetries: 5, retryDelay: 50 });
    try {
      rmdirSync(this.#dataRoot);
    } catch {
      // Other runs keep files there.
    }
  }
}

/** Ends a process and waits until it has gone. */
export async function end(child: ChildProcess, signal: "SIGTERM" | "SIGKILL"): Promise<void> {
  if (child.exitCode !== null || child.signalCode !== null) return;
  const gone = new Promise((resolved) => child.once("exit", resolved));
  child.kill(signal);
  const timer = setTimeout(() => child.kill("SIGKILL"), 20_000);
  await gone;
  clearTimeout(timer);
}
