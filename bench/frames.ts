/**
 * Splits the bytes of a kept HTTP/1.1 connection (as latin1 text) into messages. It handles only a head and a
 * body of stated length, because full parsing would cost as much as the servers that are measured.
 */
export class Frames {
  readonly #onFrame: (head: string, body: string) => void;
  #rest = "";

  constructor(onFrame: (head: string, body: string) => void) {
    this.#onFrame = onFrame;
  }

  push(text: string): void {
    let rest = this.#rest === "" ? text : this.#rest + text;
    for (;;) {
      const headEnd = rest.indexOf("\r\n\r\n");
      if (headEnd === -1) break;
      const head = rest.slice(0, headEnd);
      const end = headEnd + 4 + bodyLength(head);
      if (rest.length < end) break;
      this.#onFrame(head, rest.slice(headEnd + 4, end));
      rest = rest.length === end ? "" : rest.slice(end);
    }
    this.#rest = rest;
  }
}

function bodyLength(head: string): number {
  const stated = /\r\ncontent-length: *(\d+)/i.exec(head);
  if (stated) return Number(stated[1]);
  if (/\r\ntransfer-encoding:/i.test(head))
    throw new Error(`The bench reads bodies of stated length only, and got:\n${head}`);
  return 0;
}
