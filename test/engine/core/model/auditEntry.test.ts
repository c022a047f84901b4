import { expect, test } from "vitest";
import type { AuditEntry, AuditFilter } from "../../../../src/engine/core/model/auditEntry.ts";
import { matchesAuditFilter } from "../../../../src/engine/core/model/auditEntry.ts";

const entry = {
  account: "acme",
  id: "aud_1",
  time: 10,
  what: "queue.delete",
  object: "q",
  by: { kind: "token" },
} as AuditEntry;

test.each<[AuditFilter, boolean]>([
  [{}, true],
  [{ from: 10, to: 10 }, true],
  [{ from: 11 }, false],
  [{ to: 9 }, false],
  [{ object: "q" }, true],
  [{ object: "r" }, false],
  [{ by: ["token"] }, true],
  [{ by: [] }, false],
  [{ what: ["queue"] }, true],
  [{ what: ["run", "queue.delete"] }, true],
  [{ what: ["queue.del"] }, false],
  [{ what: ["que"] }, false],
  [{ what: [] }, false],
])("the filter %j selects the entry: %s", (filter, passes) => {
  expect(matchesAuditFilter(filter, entry)).toBe(passes);
});
