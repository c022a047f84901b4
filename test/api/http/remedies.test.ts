import { expect, test } from "vitest";
import { formatRefusal, formatRemedy } from "../../../src/api/http/remedies.ts";
import type { Remedy } from "../../../src/engine/core/values/remedy.ts";

const raise = { remedy: "raise-limit", account: "acme", plan: "free", limit: "requestsPerDay" } as const;

test.each<readonly [Remedy, string]>([
  [
    raise,
    "; raise the limit of this account (plan free) with " +
      '"waypost account limits acme --requests-per-day <value>"',
  ],
  [
    { ...raise, limit: "tokens", isLast: true },
    ', or raise the limit of this account (plan free) with "waypost account limits acme --tokens <value>"',
  ],
  [
    { remedy: "raise-storage-quota", account: "acme" },
    ', or raise it with "waypost account limits acme --storage-bytes <n>"',
  ],
  [{ remedy: "raise-server-queues" }, ", or start the server with a higher WAYPOST_MAX_QUEUES"],
  [{ remedy: "raise-budget" }, "; PATCH /v2/svc/update-budget/<id> raises it, and the value 0 removes it"],
  [{ remedy: "create-token" }, '. Create another with "waypost token create" or POST /v2/tokens'],
  [{ remedy: "enable-account", account: "acme" }, '. "waypost account enable acme" re-enables it'],
  [{ remedy: "list-accounts" }, '; "waypost account list" lists the accounts'],
  [{ remedy: "show-account", account: "shop" }, '; "waypost account show shop" shows it'],
  [{ remedy: "allow-host" }, ", or ask the operator to add it (waypost account hosts)"],
  [
    { remedy: "create-group", group: "g" },
    "; GET /v2/topics lists the groups, POST /v2/topics/g/endpoints creates this one",
  ],
  [
    { remedy: "repair-group", group: "g" },
    "; add all of them again (POST /v2/topics/g/endpoints), delete the group, or restore a backup",
  ],
  [{ remedy: "retry-dead-letter", dlqId: "1-0" }, "; use POST /v2/dlq/retry/1-0 to send it again"],
  [{ remedy: "resume-run", dlqId: "1-0" }, "; use POST /v2/workflows/dlq/resume/1-0"],
  [
    { remedy: "rotate-later", after: "2026-01-02T00:00:00.000Z" },
    ". Give them the keys of GET /v2/keys and rotate again at 2026-01-02T00:00:00.000Z or later; " +
      "force=true rotates now",
  ],
])("the remedy %j ends a refusal with its command or request", (remedy, text) => {
  expect(formatRemedy(remedy)).toBe(text);
  expect(formatRefusal({ message: "it: is wrong", remedy })).toBe(`it: is wrong${text}`);
});

test("a refusal without a remedy is only its message", () => {
  expect(formatRefusal({ message: "it: is wrong" })).toBe("it: is wrong");
});

test("a remedy that is in the text is not repeated, and an unknown one is left out", () => {
  const remedy = { remedy: "raise-budget" } as const;
  const text = formatRefusal({ message: "budget: is used up", remedy });
  expect(formatRefusal({ message: text, remedy })).toBe(text);
  const unknown = { remedy: "of a later version" } as unknown as typeof remedy;
  expect(formatRefusal({ message: "budget: is used up", remedy: unknown })).toBe("budget: is used up");
});
