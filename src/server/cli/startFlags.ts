import type { Command } from "commander";

/** The flags of a start that are not settings: they are for one start. */
export type StartFlags = { hold?: boolean; acceptClock?: boolean; force?: boolean };

/** Adds these flags to a command. */
export const withStartFlags = (command: Command): Command =>
  command
    .option(
      "--hold",
      "accept publishes but send nothing, on all nodes, until waypost unhold; for a restored store",
    )
    .option(
      "--accept-clock",
      "accept that the clock is right although the SQLite store has used later times; " +
        "stored delays move back by the difference; until the clock passes these times, history is not " +
        "removed by its age, and searches by time miss new messages",
    )
    .option(
      "--force",
      "start on a store that waypost migrate-store has moved elsewhere, and remove its mark; " +
        "servers on both stores send unfinished messages twice",
    );

/** Returns what the flags mean for the server. */
export const readStartFlags = ({ hold = false, acceptClock = false, force = false }: StartFlags) => ({
  hold,
  acceptsClock: acceptClock,
  servesMoved: force,
});
