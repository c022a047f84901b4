import { Resolver, lookup as systemLookup } from "node:dns/promises";
import type { Millis } from "../core/message.ts";
import { elapsed } from "./clock.ts";

/** All addresses of a name, as text. Rejects, as Node's own does, when the name is not known. */
export type Resolve = (hostname: string) => Promise<readonly string[]>;

type Ways = {
  /** Holds one of two threads until its name servers have answered, or for some ten seconds and more. */
  lookUp: Resolve;
  /** Whether the name servers of a name answer soon, whatever they say. Holds nobody up. */
  areAnswering(hostname: string): Promise<boolean>;
};

/** Nobody waits any longer for a connection. */
const patience: Millis = 10_000;

/**
 * The system's own way to resolve a name knows of all that a machine may be told about names, but blocks a thread for each, and there are
 * two: a few names whose servers are silent would stop deliveries to all others, of all accounts. So the servers of a name are asked first in a
 * way that blocks nothing, and names of silent ones are looked up one after another, by one of the threads (docs/decisions/0046).
 */
export function apartFromSilent({ lookUp, areAnswering }: Ways): Resolve {
  let silent: Promise<unknown> = Promise.resolve();
  return async (hostname) => {
    if (isLocal(hostname) || (await areAnswering(hostname))) return lookUp(hostname);
    const since = elapsed();
    const turn = silent.then(() => {
      if (elapsed() - since > patience)
        throw Object.assign(new Error(`the name servers of ${hostname} do not answer`), { code: "EAI_AGAIN" });
      return lookUp(hostname);
    });
    silent = turn.catch(() => undefined);
    return turn;
  };
}

/** Reports whether a name stands for this machine, so that no name server is asked for it. */
export const isLocal = (hostname: string): boolean => /(^|\.)localhost\.?$/i.test(hostname);

/** Many connections that need the same name at the same time share one answer. */
export function sharing(resolve: Resolve): Resolve {
  const running = new Map<string, Promise<readonly string[]>>();
  return (hostname) => {
    const begun = running.get(hostname);
    if (begun) return begun;
    const answer = resolve(hostname).finally(() => running.delete(hostname));
    running.set(hostname, answer);
    return answer;
  };
}

/** Asks for both kinds of address, as looking it up does. `servers`: instead of those of the system. An answer that there is none is an answer. */
export function askingServers(servers?: readonly string[]): Ways["areAnswering"] {
  const resolver = new Resolver({ timeout: 1_000, tries: 2 });
  if (servers) resolver.setServers(servers);
  const isAnswered = (asked: Promise<unknown>): Promise<boolean> =>
    asked.then(
      () => true,
      (error: NodeJS.ErrnoException) => error.code !== "ETIMEOUT",
    );
  return async (hostname) => {
    const answered = await Promise.all([isAnswered(resolver.resolve4(hostname)), isAnswered(resolver.resolve6(hostname))]);
    return answered.every(Boolean);
  };
}

export async function lookUpBySystem(hostname: string): Promise<readonly string[]> {
  const answers = await systemLookup(hostname, { all: true });
  return answers.map(({ address }) => address);
}
