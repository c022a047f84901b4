import { generateKeyPairSync, sign } from "node:crypto";
import { isIP } from "node:net";

/** A certificate and its key, both as PEM. */
export type SignedCertificate = { certificate: string; key: string };

/**
 * Returns a self-signed certificate for these host names and IPv4 addresses, valid from 2020 to 2049. Node
 * can read certificates but not create them, so this file has the necessary part of X.509.
 */
export function createSelfSigned(hosts: readonly string[]): SignedCertificate {
  const { privateKey, publicKey } = generateKeyPairSync("ec", { namedCurve: "P-256" });
  const algorithm = sequence(objectId("2a8648ce3d040302")); // ecdsa-with-SHA256
  const name = sequence(
    encodeDer(0x31, sequence(objectId("550403"), encodeDer(0x0c, Buffer.from(hosts[0] ?? "")))),
  );
  const validity = sequence(
    encodeDer(0x17, Buffer.from("200101000000Z")),
    encodeDer(0x17, Buffer.from("491231235959Z")),
  );
  const names = sequence(
    ...hosts.map((host) =>
      isIP(host) === 4 ? encodeDer(0x87, encodeAddress(host)) : encodeDer(0x82, Buffer.from(host)),
    ),
  );
  const extensions = sequence(
    sequence(objectId("551d11"), encodeDer(0x04, names)), // subjectAltName
    sequence(
      objectId("551d13"),
      encodeDer(0x01, Buffer.from([255])),
      encodeDer(0x04, sequence(encodeDer(0x01, Buffer.from([255])))),
    ), // an authority
  );
  const version = encodeDer(0xa0, encodeDer(0x02, Buffer.from([2])));
  const serial = encodeDer(0x02, Buffer.from([1]));
  const spki = publicKey.export({ type: "spki", format: "der" });
  const signed = sequence(
    version,
    serial,
    algorithm,
    name,
    validity,
    name,
    spki,
    encodeDer(0xa3, extensions),
  );
  const signature = encodeDer(0x03, Buffer.concat([Buffer.from([0]), sign("sha256", signed, privateKey)]));
  const lines = (
    sequence(signed, algorithm, signature)
      .toString("base64")
      .match(/.{1,64}/g) ?? []
  ).join("\n");
  return {
    certificate: `-----BEGIN CERTIFICATE-----\n${lines}\n-----END CERTIFICATE-----\n`,
    key: String(privateKey.export({ type: "pkcs8", format: "pem" })),
  };
}

/** Returns the DER encoding of a tag, a length and the content. */
function encodeDer(tag: number, content: Buffer): Buffer {
  const { length } = content;
  const written = length < 128 ? [length] : length < 256 ? [0x81, length] : [0x82, length >> 8, length & 255];
  return Buffer.concat([Buffer.from([tag, ...written]), content]);
}

const sequence = (...parts: Buffer[]): Buffer => encodeDer(0x30, Buffer.concat(parts));
const objectId = (hex: string): Buffer => encodeDer(0x06, Buffer.from(hex, "hex"));
const encodeAddress = (host: string): Buffer => Buffer.from(host.split(".").map(Number));
