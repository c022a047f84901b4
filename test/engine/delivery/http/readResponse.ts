import type { HeaderList } from "../../../../src/engine/core/values/basics.ts";
import { ResponseReader, type ConnectionReuse } from "../../../../src/engine/delivery/http/response.ts";

type Read = {
  status: number;
  headers: HeaderList;
  body: string;
  reuse: ConnectionReuse;
  isWhole: boolean;
  began: number;
};

/** Reads these pieces. If `ended`, the connection ends afterwards. */
export function read(pieces: readonly string[], { method = "POST", ended = false } = {}): Read {
  const heard = { status: 0, headers: [] as HeaderList, body: "", began: 0 };
  const reader = new ResponseReader(method, {
    onResponse: (status, fields) =>
      Object.assign(heard, { status, headers: fields(), began: heard.began + 1 }),
    onBody: (bytes) => void (heard.body += bytes.toString("latin1")),
  });
  for (const piece of pieces) reader.take(Buffer.from(piece, "latin1"));
  const { reuse } = reader;
  const isWhole = ended ? reader.handleClose() : reader.isWhole;
  return { ...heard, reuse, isWhole };
}

/** The beginning of a response with 200. */
export const ok = "HTTP/1.1 200 OK\r\n";
/** The head of a response with 200 whose body is in chunks. */
export const chunked = `${ok}Transfer-Encoding: chunked\r\n\r\n`;
