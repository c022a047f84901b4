/** The command cannot do what was requested. The text is for the operator. Exit code 2. */
export class CannotStart extends Error {}
