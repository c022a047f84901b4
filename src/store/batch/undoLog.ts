/**
 * The steps that undo what the running command has done so far. A command that throws leaves no trace in its
 * batch.
 */
export class UndoLog {
  #steps: (() => void)[] = [];

  /** Forgets the steps of the previous command, whose changes stay. */
  begin(): void {
    this.#steps = [];
  }

  push(step: () => void): void {
    this.#steps.push(step);
  }

  /** Reports whether the running command has changed nothing yet. */
  isEmpty(): boolean {
    return this.#steps.length === 0;
  }

  /** Undoes everything since `begin`, the newest step first. */
  rollBack(): void {
    for (const undo of this.#steps.reverse()) undo();
    this.#steps = [];
  }
}
