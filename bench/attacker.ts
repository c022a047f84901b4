/**
 * One attack of the hostile account, in its own process with low priority, so that the server is measured and
 * not the machine.
 */
import { setPriority } from "node:os";
import { attacks } from "./attacks.ts";
import { type AttackCount, Target } from "./hostile.ts";
import { serveDriver } from "./benchProcess.ts";

/** The requests that the attacker handles. */
export type AttackerAnswers = typeof answers;

let running: { target: Target; begin: () => Promise<void>; done: Promise<void> } | null = null;

const answers = {
  /** Prepares the attack with this name. */
  prepare: async ({
    name,
    port,
    token,
    startsAt,
  }: {
    name: string;
    port: number;
    token: string;
    startsAt: number;
  }): Promise<void> => {
    const attack = attacks[name];
    if (attack === undefined) throw new Error(`There is no attack "${name}".`);
    const target = new Target({ port, token });
    running = { target, begin: await attack.prepare(target, startsAt), done: Promise.resolve() };
  },
  /** Starts the attack. */
  begin: (): void => {
    if (running !== null) running.done = running.begin();
  },
  /** Ends the attack and returns what it has sent. */
  end: async (): Promise<AttackCount | null> => {
    running?.target.over.abort();
    await running?.done;
    return running?.target.sent ?? null;
  },
};

setPriority(10);
serveDriver(answers);
