import { createServer } from "node:net";
import { request as nodeRequest } from "node:http";
import type { AddressInfo } from "node:net";
import { fc } from "../../../seeds.ts";
import { expect, onTestFinished, test } from "vitest";
import { BadResponse } from "../../../../src/engine/delivery/http/response.ts";
import { chunked, ok, read } from "./readResponse.ts";

// Random responses, in random pieces.

const field = fc
  .tuple(fc.stringMatching(/^[A-Za-z-]{1,8}$/), fc.stringMatching(/^[!-~]([ -~]{0,10}[!-~])?$/))
  .filter(([name]) => !/^(content-length|transfer-encoding|connection|keep-alive)$/i.test(name));
const bytes = fc.uint8Array({ maxLength: 300 }).map((some) => Buffer.from(some).toString("latin1"));
const answer = fc
  .record({
    status: fc.integer({ min: 200, max: 599 }),
    fields: fc.array(field, { maxLength: 6 }),
    parts: fc.array(bytes, { maxLength: 5 }),
    how: fc.constantFrom("length", "chunks", "end"),
  })
  .map(({ status, fields, parts, how }) => {
    const head = `HTTP/1.1 ${status} x\r\n${fields.map(([name, value]) => `${name}: ${value}\r\n`).join("")}`;
    const none = status === 204 || status === 304;
    const body = parts.join("");
    if (how === "end")
      return {
        said: `${head}Connection: close\r\n\r\n${none ? "" : body}`,
        body: none ? "" : body,
        status,
        fields,
      };
    if (how === "length")
      return {
        said: `${head}Content-Length: ${body.length}\r\n\r\n${none ? "" : body}`,
        body: none ? "" : body,
        status,
        fields,
      };
    const chunks = parts
      .filter((part) => part !== "")
      .map((part) => `${part.length.toString(16)}\r\n${part}\r\n`);
    return {
      said: `${head}Transfer-Encoding: chunked\r\n\r\n${none ? "" : `${chunks.join("")}0\r\n\r\n`}`,
      body: none ? "" : body,
      status,
      fields,
    };
  });

/** Cuts the text at these positions. */
function cutAt(text: string, places: readonly number[]): string[] {
  const at = [0, ...places.map((place) => place % (text.length + 1)), text.length].toSorted((a, b) => a - b);
  return at.slice(1).map((end, index) => text.slice(at[index], end));
}

test("a response is the same in pieces of any size", () => {
  fc.assert(
    fc.property(answer, fc.array(fc.nat(), { maxLength: 20 }), ({ said, body, status, fields }, places) => {
      const found = read(cutAt(said, places), { ended: true });
      expect(found).toMatchObject({ status, body, isWhole: true });
      expect(found.headers.slice(0, fields.length)).toEqual(fields);
    }),
  );
});

test("any bytes are accepted or refused, and cause no other error", () => {
  const noise = fc.oneof(
    bytes,
    fc.constantFrom(
      ok,
      chunked,
      "\r\n",
      "\r\n\r\n",
      "0\r\n\r\n",
      "5\r\n",
      "Content-Length: 3\r\n",
      "Transfer-Encoding: chunked\r\n",
      ":",
      "\n",
      " ",
    ),
  );
  fc.assert(
    fc.property(fc.array(noise, { maxLength: 12 }), fc.array(fc.nat(), { maxLength: 8 }), (parts, places) => {
      const verdict = (pieces: readonly string[]): unknown => {
        try {
          const { reuse: _reuse, ...found } = read(pieces, { ended: true });
          return found;
        } catch (error) {
          expect(error).toBeInstanceOf(BadResponse);
          return "refused";
        }
      };
      const said = parts.join("");
      expect(verdict(cutAt(said, places))).toEqual(verdict([said]));
    }),
    { numRuns: 2_000 },
  );
});

/** Starts a server that sends the response of a path, and reads it with Node's own client. */
async function nodeReads(says: readonly string[]): Promise<({ status: number; body: string } | "refused")[]> {
  const server = createServer((socket) => {
    socket.on("error", () => undefined);
    socket.once("data", (asked) =>
      socket.end(says[Number(/ \/(\d+) /.exec(asked.toString())?.[1])] ?? "", "latin1"),
    );
  });
  await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
  onTestFinished(() => void server.close());
  const { port } = server.address() as AddressInfo;
  const one = (index: number): Promise<{ status: number; body: string } | "refused"> =>
    new Promise((resolve) => {
      const asked = nodeRequest(
        { port, host: "127.0.0.1", path: `/${index}`, method: "POST", agent: false },
        (incoming) => {
          const chunks: Buffer[] = [];
          incoming.on("data", (chunk: Buffer) => chunks.push(chunk));
          incoming.on("error", () => resolve("refused"));
          incoming.on("end", () =>
            resolve({ status: incoming.statusCode ?? 0, body: Buffer.concat(chunks).toString("latin1") }),
          );
        },
      );
      asked.on("error", () => resolve("refused"));
      asked.end();
    });
  const answers: ({ status: number; body: string } | "refused")[] = [];
  for (let from = 0; from < says.length; from += 50)
    answers.push(...(await Promise.all(says.slice(from, from + 50).map((_, index) => one(from + index)))));
  return answers;
}

test("a response that Node's client also accepts is read as the same response", async () => {
  const edits = fc.array(
    fc.tuple(fc.nat(), fc.constantFrom("", "\r", "\n", "\r\n", " ", ":", "0", "1", "a", ";", "\0", ",")),
    {
      maxLength: 2,
    },
  );
  const edited = fc.tuple(answer, edits).map(([{ said }, changes]) =>
    changes.reduce((text, [place, by]) => {
      const at = place % text.length;
      return text.slice(0, at) + by + text.slice(at + (by === "" ? 1 : 0));
    }, said),
  );
  const says = fc.sample(edited, 400);
  const expected = await nodeReads(says);
  const both = says
    .map((said, index) => ({ said, node: expected[index], own: verdictOf(said) }))
    .filter(({ node, own }) => own !== "refused" && node !== "refused");
  expect(both.filter(({ node, own }) => JSON.stringify(node) !== JSON.stringify(own))).toEqual([]);
  expect(both.length).toBeGreaterThan(100);
});

function verdictOf(said: string): { status: number; body: string } | "refused" {
  try {
    const { status, body, isWhole } = read([said], { ended: true });
    return isWhole ? { status, body } : "refused";
  } catch {
    // The reader is stricter, so it may refuse a response that Node's client accepts.
    return "refused";
  }
}
