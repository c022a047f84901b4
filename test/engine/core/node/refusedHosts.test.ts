import { expect, test } from "vitest";
import { RefusedHosts } from "../../../../src/engine/core/node/refusedHosts.ts";

const refused = { address: "10.0.0.7", allow: "10.0.0.7", isResolved: false };

test("the last 20 hosts of an account are remembered, each since it was first named", () => {
  const hosts = new RefusedHosts();
  for (let at = 0; at < 25; at++) hosts.note("a", `h${at}:80`, at);
  hosts.note("a", "h10:80", 30);
  const list = hosts.list("a", { after: -1, find: () => refused });
  expect(list).toHaveLength(20);
  expect(list.map(({ host }) => host)).not.toContain("h4:80");
  expect(list.at(-1)).toEqual({ host: "h10:80", since: 10, refused });
  expect(hosts.list("a", { after: 24, find: () => refused })).toHaveLength(1);
  expect(hosts.list("b", { after: -1, find: () => refused })).toEqual([]);
});

test("a host is looked up without its port", () => {
  const hosts = new RefusedHosts();
  hosts.note("a", "lobe:3210", 1);
  hosts.note("a", "[fd00::1]:80", 1);
  const asked: string[] = [];
  hosts.list("a", { after: 0, find: (host) => (asked.push(host), null) });
  expect(asked).toEqual(["lobe", "[fd00::1]"]);
});
