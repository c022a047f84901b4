/** The exit codes of the commands that speak to a server. The guide of the command line explains them. */
export const exitCodes = {
  failed: 1,
  usage: 2,
  notFound: 3,
  forbidden: 4,
  unavailable: 5,
  interrupted: 130,
} as const;

/** Thrown if a command cannot do its work. The text is one sentence that says what to do. */
export class CommandFailed extends Error {
  readonly exitCode: number;
  /** Whether the server has failed itself (status 500 and above), so that a repetition may succeed. */
  readonly isOfServer: boolean;

  constructor(kind: keyof typeof exitCodes, message: string, isOfServer = false) {
    super(message);
    this.exitCode = exitCodes[kind];
    this.isOfServer = isOfServer;
  }
}
