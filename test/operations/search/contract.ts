import { describe, expect, test } from "vitest";
import { findById, findNamed } from "../../../src/operations/search/lookUp.ts";
import { makeRunStart } from "../../engine/store/contract/runs.ts";
import { bytes, makeAccount, StoreFixture } from "../../engine/store/storeFixture.ts";
import type { OpenStore } from "../../engine/store/storeFixture.ts";
import type { SearchedSlice, SearchPosition } from "../../../src/operations/search/slices.ts";

/** Searches all rows of an account, and returns the slices. */
async function searchAll({ store }: StoreFixture, text: string, account = "acc"): Promise<SearchedSlice[]> {
  const slices: SearchedSlice[] = [];
  for (let position: SearchPosition | null = { list: "messages", before: null }; position;) {
    const slice: SearchedSlice = await store.read.searchSlice({ account, text, count: 100, position });
    slices.push(slice);
    position = slice.next;
  }
  return slices;
}

const kindsOf = (slices: readonly SearchedSlice[]): string[] =>
  slices.flatMap(({ found }) => found.map(({ kind, part }) => `${kind} ${part}`));

/** The search for text. */
export function describeSearch(open: OpenStore): void {
  describe("a search for text", () => {
    test("finds unfinished messages, dead letters and runs of the own account, newest first", async () => {
      const fixture = await StoreFixture.open(open);
      await fixture.account();
      await fixture.store.execute("createAccount", makeAccount("other"));
      const failed = await fixture.sent({ body: bytes("order 4711"), retries: 0 });
      await fixture.settle(failed, { status: 500, body: bytes("ORA-00060") });
      await fixture.send({ body: bytes("Order 4711, first"), delay: 60_000 });
      await fixture.send({ labels: ["order 4711"], delay: 60_000 });
      await fixture.publish([makeRunStart("run", { body: bytes("order 4711") })]);
      const slices = await searchAll(fixture, "ORDER 4711");
      expect(kindsOf(slices)).toEqual(["message label", "message body", "deadLetter body", "run body"]);
      expect(slices.at(-1)?.next).toBeNull();
      expect(kindsOf(await searchAll(fixture, "ora-00060"))).toEqual(["deadLetter response"]);
      expect(kindsOf(await searchAll(fixture, "order 4711", "other"))).toEqual([]);
    });

    test("does not read what a redaction hides, headers, and delivered messages", async () => {
      const fixture = await StoreFixture.open(open);
      await fixture.account();
      await fixture.send({
        body: bytes("needle"),
        headers: [["Authorization", "needle"]],
        redaction: { body: true, headers: false },
        delay: 60_000,
      });
      const delivered = await fixture.sent({ body: bytes("needle") });
      await fixture.settle(delivered, { status: 200 });
      const failed = await fixture.sent({
        body: bytes("needle"),
        redaction: { body: true, headers: true },
        retries: 0,
      });
      await fixture.settle(failed, { status: 500, body: bytes('{"message": "needle"}') });
      expect(kindsOf(await searchAll(fixture, "needle"))).toEqual([]);
    });

    test("takes characters that a database does not store as plain text", async () => {
      const fixture = await StoreFixture.open(open);
      await fixture.account();
      const { read } = fixture.store;
      for (const text of ["a\0b", "\ud800x", "%_", "'; --"]) {
        const of = { account: "acc", text };
        expect([...(await findById(read, of)), ...(await findNamed(read, of))]).toEqual([]);
      }
    });

    test("reads at most 1 MiB of bodies in a slice, and tells which bodies are too large", async () => {
      const fixture = await StoreFixture.open(open);
      await fixture.account();
      const large = bytes(`${"x".repeat(600 * 1024)} needle`);
      for (let at = 0; at < 3; at++) await fixture.send({ body: large, delay: 60_000 });
      await fixture.send({ body: bytes(`${"x".repeat(1024 * 1024)} needle`), delay: 60_000 });
      const slices = await searchAll(fixture, "needle");
      expect(kindsOf(slices)).toEqual(["message body", "message body", "message body"]);
      expect(slices.reduce((sum, { skipped }) => sum + skipped, 0)).toBe(1);
      expect(slices.map(({ rows }) => rows).slice(0, 3)).toEqual([2, 1, 1]);
    });
  });
}
