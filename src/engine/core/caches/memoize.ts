import { BoundedMap } from "./boundedMap.ts";
import { copyText } from "./copyText.ts";

const maxKeyLength = 256;

/**
 * Returns a function that does what `make` does and remembers its results. It is meant for texts that nearly
 * every request repeats, such as the names of headers. It remembers the newest `most` texts, but no text of
 * more than 256 characters.
 */
export function memoize<T extends object | string | number | null>(
  make: (text: string) => T,
  most = 1_000,
): (text: string) => T {
  const known = new BoundedMap<string, T>(most);
  return (text) => {
    const found = known.get(text);
    if (found !== undefined) return found;
    const value = make(text);
    if (text.length <= maxKeyLength) known.set(copyText(text), value);
    return value;
  };
}
