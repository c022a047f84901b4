import { Client, Receiver } from "@upstash/qstash";

/** The methods that the client package offers, and those that were called and have returned. */
export type Methods = { offered: readonly string[]; answered: ReadonlySet<string>; unwatch(): void };

/**
 * Watches every method and every getter of the client's classes. It reads them from the classes, so that it
 * also finds those of a new version. Their behaviour does not change.
 */
export function watchMethods(objects: ReadonlyMap<string, object> = createInstances()): Methods {
  const offered: string[] = [];
  const answered = new Set<string>();
  const restore: (() => void)[] = [];
  for (const [owner, object] of objects) {
    offered.push(...ownFunctions(object).map((name) => `${owner}.${name}`));
    const prototype: object = Object.getPrototypeOf(object);
    for (const [name, descriptor] of Object.entries(Object.getOwnPropertyDescriptors(prototype))) {
      if (name === "constructor") continue;
      const label = `${owner}.${name}`;
      offered.push(label);
      Object.defineProperty(
        prototype,
        name,
        watchProperty(descriptor, () => answered.add(label)),
      );
      restore.push(() => Object.defineProperty(prototype, name, descriptor));
    }
  }
  return { offered, answered, unwatch: () => restore.forEach((undo) => undo()) };
}

/** Returns an object of each class, by the name that users know. */
function createInstances(): Map<string, object> {
  const client = new Client({ baseUrl: "http://127.0.0.1:1", token: "none" });
  const byGetter = Object.entries(Object.getOwnPropertyDescriptors(Client.prototype)).flatMap(
    ([name, { get }]): [string, object][] => (get ? [[name, get.call(client)]] : []),
  );
  const all: [string, object][] = [
    ["client", client],
    ...byGetter,
    ["queue", client.queue()],
    ["chat", client.chat()],
    ["receiver", new Receiver()],
  ];
  const seen = new Set<object>();
  return new Map(all.filter(([, object]) => isNew(seen, Object.getPrototypeOf(object))));
}

function isNew(seen: Set<object>, prototype: object): boolean {
  if (seen.has(prototype)) return false;
  seen.add(prototype);
  return true;
}

const ownFunctions = (object: object): string[] =>
  Object.entries(object).flatMap(([name, value]) => (typeof value === "function" ? [name] : []));

/** Returns the same property, which also calls `note` once it has returned. */
function watchProperty(descriptor: PropertyDescriptor, note: () => void): PropertyDescriptor {
  const around = (inner: (...args: unknown[]) => unknown) =>
    function (this: unknown, ...args: unknown[]): unknown {
      const answer = inner.apply(this, args);
      if (answer instanceof Promise) answer.then(note, () => undefined);
      else note();
      return answer;
    };
  if (descriptor.get) return { ...descriptor, get: around(descriptor.get) };
  return { ...descriptor, value: around(descriptor.value) };
}
