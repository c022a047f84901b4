/**
 * The steps that undo the changes of the commands that are not final yet. A command that throws leaves no
 * trace in its batch, and a run that has read too little leaves none either.
 */
export class UndoLog {
  #steps: (() => void)[] = [];
  /** Where the steps of the running command begin. */
  #start = 0;
  #isChanged = false;

  /** Begins a command. */
  begin(): void {
    this.#start = this.#steps.length;
    this.#isChanged = false;
  }

  /** Adds a step that undoes a change of the running command. */
  push(step: () => void): void {
    this.#steps.push(step);
    this.#isChanged = true;
  }

  /** Adds a step that undoes anything but a change of rows or effects. */
  pushSilently(step: () => void): void {
    this.#steps.push(step);
  }

  /** Reports whether the running command has changed anything. */
  hasChanged(): boolean {
    return this.#isChanged;
  }

  /** Undoes everything that the running command did. */
  rollBack(): void {
    this.#rollBackTo(this.#start);
  }

  /** Undoes everything that is not final. */
  rollBackAll(): void {
    this.#rollBackTo(0);
  }

  /** Makes everything final. */
  keep(): void {
    if (this.#steps.length > 0) this.#steps = [];
  }

  #rollBackTo(length: number): void {
    while (this.#steps.length > length) this.#steps.pop()?.();
  }
}
