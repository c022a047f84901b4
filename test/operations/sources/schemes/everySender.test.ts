import { fc } from "../../../seeds.ts";
import { describe, expect, test } from "vitest";
import type { Verification, WebhookCall } from "../../../../src/operations/sources/schemes/verification.ts";
import { verificationSchema, verify } from "../../../../src/operations/sources/schemes/verification.ts";
import type { Sender } from "./senders.ts";
import { senders, getHeader, withHeader } from "./senders.ts";

// Tests that apply to every sender. The other files of this folder test what is particular to one sender.

const reasonFor = (verification: Verification, call: WebhookCall): string => {
  const verdict = verify(verification, call);
  return verdict.kind === "rejected" ? verdict.reason : `${verdict.kind} instead of rejected`;
};

const others: Record<string, string> = {
  whsec_: "whsec_AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA",
  whpk_: "whpk_PUAXw+hDiVqStwqnTRt+vJyYLM8uxJaMwM1V8Sr0Zgw=",
};

/** Returns the same verification with another secret of the same form. */
function withSecret(verification: Verification, secret: string | string[]): Verification {
  return { ...verification, secret };
}

const secretOf = ({ verification }: Sender): string =>
  typeof verification.secret === "string" ? verification.secret : "";
const otherSecret = (sender: Sender): string =>
  others[/^wh(sec|pk)_/.exec(secretOf(sender))?.[0] ?? ""] ?? "wrong";

describe.each(senders)("$name", (sender) => {
  const { verification, call, header, eventId, topic } = sender;
  const signature = getHeader(call, header);

  test("is accepted as signed, and its event has the sender's id or, without one, its signature", () => {
    const signed = { signature: signature.replace("sha256=", ""), topic };
    expect(verify(verification, call)).toEqual({
      kind: "accepted",
      eventId,
      ...(topic === undefined ? {} : { signed }),
    });
  });

  test("is stored in the form that the API accepts", () => {
    expect(verificationSchema.parse(verification)).toEqual(verification);
    expect(JSON.parse(JSON.stringify(verification))).toEqual(verification);
  });

  test("is rejected with another secret", () => {
    expect(reasonFor(withSecret(verification, otherSecret(sender)), call)).toMatch(/match/);
  });

  test("is accepted while the secret is replaced, in any order, and rejected afterwards", () => {
    const old = secretOf(sender);
    const other = otherSecret(sender);
    expect(verify(withSecret(verification, [other, old]), call).kind).toBe("accepted");
    expect(verify(withSecret(verification, [old, other]), call).kind).toBe("accepted");
    expect(verify(withSecret(verification, [other]), call).kind).toBe("rejected");
  });

  test("is rejected if any byte of the body was changed, removed or added", () => {
    for (let at = 0; at < call.body.length; at++) {
      // The lowest bit is flipped. Another bit may turn %2B into %2b, which is the same form.
      const body = call.body.map((byte, index) => (index === at ? byte ^ 1 : byte));
      expect(verify(verification, { ...call, body }).kind, `byte ${at}`).toBe("rejected");
    }
    expect(verify(verification, { ...call, body: call.body.subarray(0, -1) }).kind).toBe("rejected");
    expect(verify(verification, { ...call, body: Uint8Array.from([...call.body, 0x20]) }).kind).toBe(
      "rejected",
    );
    expect(verify(verification, { ...call, body: new Uint8Array() }).kind).toBe("rejected");
  });

  test("is rejected without its signature, and the reason names the header", () => {
    expect(reasonFor(verification, withHeader(call, header, null))).toContain(`${header}: missing`);
    expect(reasonFor(verification, withHeader(call, header, ""))).toContain(`${header}: missing`);
  });

  test("is accepted with its header in any case, also if it is sent twice with the same value", () => {
    const lower = call.headers.map((text, at) => (at % 2 === 0 ? text.toLowerCase() : text));
    expect(verify(verification, { ...call, headers: lower }).kind).toBe("accepted");
    expect(verify(verification, { ...call, headers: [...call.headers, ...lower] }).kind).toBe("accepted");
  });

  test("is rejected if a header has two values", () => {
    for (let at = 0; at < call.headers.length; at += 2) {
      const name = call.headers[at] ?? "";
      // These headers are not read, because they decide nothing.
      if (name === "X-GitHub-Event" || (name === "Content-Type" && call.url.includes("bodySHA256"))) continue;
      for (const headers of [
        [...call.headers, name, "other"],
        [name, "other", ...call.headers],
      ])
        expect(reasonFor(verification, { ...call, headers })).toBe(
          `${name}: sent more than once with different values`,
        );
    }
  });

  test("is rejected with a signature that is shorter, longer or has a changed character", () => {
    const signedAs = (text: string): string => verify(verification, withHeader(call, header, text)).kind;
    const last = header === "Stripe-Signature" ? signature.indexOf(",v0") : signature.length;
    const first = /(=|,v1=|,)(?=[A-Za-z0-9+/]{20})/.exec(signature);
    for (let at = first ? first.index + first[0].length : 0; at < last; at++) {
      expect(signedAs(signature.slice(0, at)), `cut at ${at}`).toBe("rejected");
      const changed = signature[at] === "1" ? "2" : "1";
      expect(signedAs(signature.slice(0, at) + changed + signature.slice(at + 1)), `changed at ${at}`).toBe(
        "rejected",
      );
    }
    expect(signedAs(`${signature.slice(0, last)}0`)).toBe("rejected");
  });

  test("is rejected with its signature in another encoding", () => {
    const digits = /[A-Za-z0-9+/]{20,}={0,2}/.exec(signature)?.[0] ?? "";
    const isHex = /^[0-9a-f]+$/.test(digits);
    const other = isHex
      ? Buffer.from(digits, "hex").toString("base64")
      : Buffer.from(digits, "base64").toString("hex");
    expect(verify(verification, withHeader(call, header, signature.replace(digits, other))).kind).toBe(
      "rejected",
    );
  });

  test(
    "reveals no secret and throws nothing for any signature, body, URL and headers",
    { tags: "long" },
    () => {
      const hostile = fc.oneof(
        fc.string({ unit: "binary" }),
        fc.constantFrom(
          "t=",
          "v1=",
          "v1,",
          "v1a,",
          ",,,,",
          "t=1,t=2",
          "sha256=",
          "v0=",
          signature.slice(0, -1),
          `${signature},${signature}`,
          "\u0000",
        ),
        fc.constant(`${signature.slice(0, 20)},`.repeat(1000)),
      );
      const bodies = fc.oneof(
        fc.uint8Array(),
        fc.json().map((text) => new TextEncoder().encode(text)),
        fc.constant(call.body),
      );
      const urls = fc.oneof(
        fc.webUrl({ withQueryParameters: true }),
        fc.string(),
        fc.constant(`${call.url}?bodySHA256=%zz&%ff=%ed%a0%80`),
      );
      const names = fc.constantFrom(...call.headers.filter((_, at) => at % 2 === 0));
      fc.assert(
        fc.property(
          fc.record({ name: names, value: hostile }),
          fc.record({ body: bodies, url: urls, method: fc.constantFrom("GET", "POST") }),
          ({ name, value }, changes) => {
            const verdict = verify(verification, { ...withHeader(call, name, value), ...changes });
            if (verdict.kind !== "rejected") return;
            expect(verdict.reason.length).toBeLessThan(300);
            expect(verdict.reason).not.toContain(secretOf(sender));
            expect(verdict.reason).not.toContain(signature);
          },
        ),
        { numRuns: 100 },
      );
    },
  );

  test("is rejected at any size with a header of 100,000 signatures", () => {
    const one = signature.replaceAll(/.(?=.{0,20}$)/g, "0");
    for (const separator of [",", " ", ""])
      expect(reasonFor(verification, withHeader(call, header, `${one}${separator}`.repeat(100_000)))).toMatch(
        new RegExp(`^${header}: \\d{7,} characters exceed the limit of 8192$`),
      );
  });
});

const timed = senders.flatMap(({ name, verification, call, tolerance }) =>
  tolerance === null ? [] : [{ name, verification, call, limit: tolerance }],
);

test.each(timed)(
  "$name is rejected only if its time is too far in the past or future",
  ({ verification, call, limit }) => {
    const at = (seconds: number) => ({ ...call, now: call.now + seconds * 1000 });
    for (const seconds of [limit, -limit]) expect(verify(verification, at(seconds)).kind).toBe("accepted");
    expect(reasonFor(verification, at(limit + 1))).toContain(
      `signed ${limit + 1} seconds ago, which exceeds the limit of ${limit}`,
    );
    expect(reasonFor(verification, at(-limit - 1))).toContain(
      `signed ${limit + 1} seconds in the future, which exceeds the limit of ${limit}`,
    );
  },
);
