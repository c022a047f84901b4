import { describe, expect, test } from "vitest";
import type { Verification } from "../../../../src/operations/sources/schemes/verification.ts";
import { verify } from "../../../../src/operations/sources/schemes/verification.ts";
import { makeCall, findSender, withHeader } from "./senders.ts";

const verification: Verification = { scheme: "twilio", secret: "12345" };
const { call } = findSender("twilio, published");
const { call: json } = findSender("twilio, a body that is not a form");

const received = (given: {
  url?: string;
  signature: string;
  body: string;
  headers?: Record<string, string>;
  method?: string;
}) =>
  makeCall({
    url: given.url ?? "https://mycompany.com/in",
    method: given.method ?? "POST",
    body: given.body,
    headers: {
      "Content-Type": "application/x-www-form-urlencoded; charset=UTF-8",
      ...given.headers,
      "X-Twilio-Signature": given.signature,
    },
  });

describe("the URL that was signed", () => {
  const path = "/myapp.php?foo=1&bar=2";

  test.each([
    ["without its port", `https://mycompany.com${path}`, "RSOYDt4T1cUTdK1PDd93/VVr8B8="],
    ["with the standard port", `https://mycompany.com${path}`, "kvajT1Ptam85bY51eRf/AJRuM3w="],
    ["without its own port", `https://mycompany.com:8443${path}`, "RSOYDt4T1cUTdK1PDd93/VVr8B8="],
    ["with its own port", `https://mycompany.com:8443${path}`, "ZOaJEsozlsUyzk5k5fpaCxTxXDA="],
    ["without the standard port it has", `https://mycompany.com:443${path}`, "RSOYDt4T1cUTdK1PDd93/VVr8B8="],
  ])("may be %s", (_, url, signature) => {
    expect(verify(verification, withHeader({ ...call, url }, "X-Twilio-Signature", signature)).kind).toBe(
      "accepted",
    );
  });

  test.each([
    ["with another port", `https://mycompany.com${path}`, "ZOaJEsozlsUyzk5k5fpaCxTxXDA="],
    ["of another protocol", `http://mycompany.com${path}`, "RSOYDt4T1cUTdK1PDd93/VVr8B8="],
    ["of another host", `https://mycompany.org${path}`, "RSOYDt4T1cUTdK1PDd93/VVr8B8="],
    ["with another query", `https://mycompany.com/myapp.php?foo=1&bar=3`, "RSOYDt4T1cUTdK1PDd93/VVr8B8="],
    ["without its host", path, "RSOYDt4T1cUTdK1PDd93/VVr8B8="],
  ])("may not be one %s", (_, url, signature) => {
    expect(verify(verification, withHeader({ ...call, url }, "X-Twilio-Signature", signature)).kind).toBe(
      "rejected",
    );
  });

  test("may have its query re-encoded", () => {
    const url = "https://mycompany.com/in?name=O%27Hara%20%26";
    expect(
      verify(verification, received({ url, signature: "ryRfkLxfFWIcHS7jn3bhkbtnnDs=", body: "" })).kind,
    ).toBe("accepted");
  });

  test("is in no reason, because it contains the secret of the source", () => {
    const verdict = verify(verification, { ...call, url: "https://waypost.example/v2/in/s3cr3t" });
    expect(verdict).toMatchObject({ kind: "rejected", reason: expect.not.stringContaining("s3cr3t") });
  });
});

describe("the fields of a form", () => {
  const signature = "S/gQmFXK9WOsjtaOVy2h2C26d38=";

  test("are signed in any order, each different value of a name once", () => {
    for (const body of [
      "MediaUrl=a&MediaUrl=b&Body=hi&MessageSid=SM1&SmsStatus=received",
      "SmsStatus=received&MessageSid=SM1&MediaUrl=b&Body=hi&MediaUrl=a&MediaUrl=b",
    ])
      expect(verify(verification, received({ signature, body }))).toEqual({
        kind: "accepted",
        eventId: "SM1:received",
      });
  });

  test("are limited in number and size", () => {
    expect(verify(verification, received({ signature, body: "a=1&".repeat(100_000) }))).toEqual({
      kind: "rejected",
      reason: "the form: 100001 fields exceed the limit of 1000",
    });
    expect(verify(verification, received({ signature, body: "a".repeat(2_000_000) }))).toMatchObject({
      reason: "the form: 2000000 bytes exceed the limit of 1048576",
    });
  });

  test("of a GET are in its URL, and the event id is the message id and its status", () => {
    const url = "https://mycompany.com/in?MessageSid=SM1&MessageStatus=sent";
    expect(
      verify(
        verification,
        received({ url, method: "GET", signature: "Ig8lGg5BzrDYe4DtWiD4rJvm4yo=", body: "" }),
      ),
    ).toEqual({
      kind: "accepted",
      eventId: "SM1:sent",
    });
  });
});

describe("a body that is not a form", () => {
  test("is rejected if nothing signs it, although the URL is signed", () => {
    const signed = { signature: "VxhRyIZAXaiggeLDVCS2shIkiak=" };
    expect(verify(verification, received({ ...signed, body: "" })).kind).toBe("accepted");
    for (const type of [
      "application/json",
      "",
      "application/x-www-form-urlencodedx",
      "text/plain; application/x-www-form-urlencoded",
    ])
      expect(
        verify(verification, received({ ...signed, body: "{}", headers: { "Content-Type": type } })),
      ).toMatchObject({
        kind: "rejected",
        reason: expect.stringContaining("this body is not signed"),
      });
  });

  test("is rejected if its hash differs from the signed hash", () => {
    expect(verify(verification, { ...json, body: new TextEncoder().encode("{}") })).toMatchObject({
      kind: "rejected",
      reason: expect.stringContaining("bodySHA256"),
    });
  });

  test("is rejected if its hash in the URL is not signed", () => {
    const bodyHash = "44136fa355b3678a1146ad16f7e8649e94fb4fc21fe77e8310c060f61caaff8a";
    const url = `https://mycompany.com/in?bodySHA256=${bodyHash}`;
    const forged = received({ url, signature: "VxhRyIZAXaiggeLDVCS2shIkiak=", body: "{}" });
    expect(verify(verification, forged)).toMatchObject({
      kind: "rejected",
      reason: expect.stringContaining("does not match"),
    });
  });
});
