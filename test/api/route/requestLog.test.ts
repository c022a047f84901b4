import { describe, expect, test } from "vitest";
import { shownPath } from "../../../src/api/route/requestLog.ts";
import { makeToken } from "../../../src/engine/core/values/tokenText.ts";

/** Contains characters that the two base64 alphabets write differently. */
const token = makeToken("usér-\u{ffff}?", "pass\u{3ff}?~\u{ffff}word");
const shown = (path: string): string => shownPath({ path, query: null });

describe("the path of a request in the log", () => {
  test.each([
    "/v2/queues",
    "/v2/workflows/runs/wfr_a%20b/status",
    "/v2/schedules/report/pause",
    "/v2/schedules/report/run",
    "/v2/hooks",
    `/v2/queues/${"q".repeat(5_000)}`,
  ])("is unchanged if it contains no secret: %#", (path) => expect(shown(path)).toBe(path));

  test.each([
    ["/v2/publish/https://shop.example/in/secret", "/v2/publish/https://shop.example"],
    ["/v2/publish/https:/shop.example/secret", "/v2/publish/https://shop.example"],
    ["/v2/publish/HTTPS://user:secret@Shop.example:8443/secret", "/v2/publish/HTTPS://Shop.example"],
    ["/v2/publish/https%3A%2F%2Fshop.example%2Fsecret", "/v2/publish/https://shop.example"],
    ["/v2/publish/https%253A%252F%252Fshop.example%252Fsecret", "/v2/publish/https://shop.example"],
    ["/v2/%70ublish/https://shop.example/secret", "/v2/publish/https://shop.example"],
    ["/V2/PUBLISH/https://shop.example/secret", "/V2/PUBLISH/https://shop.example"],
    ["/v2/publish/https://[2001:db8::1]:8080/secret", "/v2/publish/https://[2001:db8::1]"],
    ["/v2/publish/shop.example/secret", "/v2/publish/…"],
    ["/v2/enqueue/orders/https://shop.example/secret", "/v2/enqueue/orders/https://shop.example"],
    ["/v2/enqueue/orders/shop.example/secret", "/v2/enqueue/orders/…"],
    ["/v2/trigger/https://shop.example/secret", "/v2/trigger/https://shop.example"],
    ["/v2/schedules/https://shop.example/secret", "/v2/schedules/https://shop.example"],
    ["/v2/schedules/shop.example/secret", "/v2/schedules/…"],
    ["/v2/publsh/https://shop.example/secret", "/v2/publsh/https://shop.example"],
    [
      `/v2/enqueue/${"q".repeat(500)}/https://${"h".repeat(200)}.example/secret`,
      `/v2/enqueue/${"q".repeat(500)}/https://${"h".repeat(200)}.example`,
    ],
  ])("has only scheme and host of a destination: %s", (path, expected) => expect(shown(path)).toBe(expected));

  test.each([
    ["/v2/in/secret", "/v2/in/…"],
    ["/v2/IN/secret", "/v2/IN/…"],
    ["/v2/%69n/secret", "/v2/in/…"],
    ["/v2/in%2Fsecret", "/v2/in/…"],
    ["/v2/%2569n%252fsecret", "/v2/in/…"],
    ["/proxy/v2/in/secret", "/proxy/v2/in/…"],
    ["/v2/in/https://shop.example/secret", "/v2/in/…"],
    ["/v2/workflows/hooks/acc/wfr_1/paid", "/v2/workflows/hooks/…"],
    [`/${"a".repeat(400)}/in/secret`, `/${"a".repeat(400)}/in/…`],
    // More levels of encoding than any router decodes.
    [`/v2/${"%25".repeat(10)}`.replace("%25%25", `%${"25".repeat(9)}69n/secret`), "…"],
  ])("has … in place of a secret or possible secret: %s", (path, expected) =>
    expect(shown(path)).toBe(expected),
  );

  test.each([
    ["unchanged", token, "/v2/queues/…"],
    ["percent-encoded", encodeURIComponent(token), "/v2/queues/…"],
    ["encoded twice", encodeURIComponent(encodeURIComponent(token)), "/v2/queues/…"],
    ["without its padding", token.replace(/=+$/, ""), "/v2/queues/…"],
    ["in the alphabet of URLs", Buffer.from(token, "base64").toString("base64url"), "/v2/queues/…"],
    ["after a name", `Bearer%20${token}`, "/v2/queues/Bearer%20…"],
    ["before others", `${token}/x`, "/v2/queues/…"],
  ])("has … in place of a token, %s", (_, segment, expected) =>
    expect(shown(`/v2/queues/${segment}`)).toBe(expected),
  );

  test("has … in place of the request's token, in any form", () => {
    const path = "/v2/queues/a%20t0ken/x";
    expect(shownPath({ path, query: null }, "a t0ken")).toBe("…");
    expect(shownPath({ path: "/v2/queues/other", query: null }, "a t0ken")).toBe("/v2/queues/other");
  });

  test("contains no control characters", () => expect(shown("/v2/a%0Ab/in/secret")).toBe("/v2/a%0Ab/in/…"));
});
