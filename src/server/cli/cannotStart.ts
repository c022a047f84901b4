/** Thrown if a command cannot do what was requested. The text is for the operator. The exit code is 2. */
export class CannotStart extends Error {}
