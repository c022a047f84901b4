const most = 1_000;
const longest = 256;

/**
 * The same as `make`, which is not asked again for a text that came before. For what nearly every request repeats, such as the names of
 * headers. Bounded: of more than a thousand texts all are forgotten, and long ones are not remembered.
 */
export function remembered<T extends object | string | null>(make: (text: string) => T): (text: string) => T {
  const known = new Map<string, T>();
  return (text) => {
    const found = known.get(text);
    if (found !== undefined) return found;
    const made = make(text);
    if (known.size >= most) known.clear();
    if (text.length <= longest) known.set(text, made);
    return made;
  };
}
