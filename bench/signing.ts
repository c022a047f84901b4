/** The signed headers of a delivery. All servers send the same ones, so that they do the same work. */
import { createHmac, createSecretKey, hash } from "node:crypto";

const key = createSecretKey(Buffer.from("sig_0000000000000000000000000000"));
const joseHead = Buffer.from('{"alg":"HS256","typ":"JWT"}').toString("base64url");
let counter = 0;

/** Returns the signed headers of a delivery. */
export function makeHeaders({
  id,
  url,
  contentType,
  body,
}: {
  id: string;
  url: string;
  contentType: string;
  body: Buffer;
}) {
  return {
    "Content-Type": contentType,
    "User-Agent": "Svc-Queue",
    "Svc-Message-Id": id,
    "Svc-Retried": "0",
    "Svc-Signature": sign(url, body),
  };
}

/** Returns a JWT (HS256) with the claims of a delivery, including the hash of its body. */
function sign(url: string, body: Buffer): string {
  const now = Math.floor(Date.now() / 1e3);
  const claims = {
    iss: "Svc",
    sub: url,
    exp: now + 300,
    nbf: now - 3_600,
    iat: now,
    jti: `jwt_${newId()}`,
    body: hash("sha256", body, "base64url"),
  };
  const signed = `${joseHead}.${Buffer.from(JSON.stringify(claims)).toString("base64url")}`;
  return `${signed}.${createHmac("sha256", key).update(signed).digest("base64url")}`;
}

/** Returns a new message id. */
export function newId(): string {
  return `msg_${Date.now().toString(36)}${(counter++).toString(36).padStart(8, "0")}`;
}
