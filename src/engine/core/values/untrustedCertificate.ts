/** Why a certificate is not trusted, and what to do. */
type UntrustedCertificate = { problem: string; fix: string };

/** Returns why a connection refused the certificate of the other side. Returns null for any other error. */
export function findUntrustedCertificate(error: unknown): UntrustedCertificate | null {
  const code = String(Reflect.get(Object(error), "code") ?? "");
  if (!/CERT|SIGNED|SIGNATURE|ISSUER|ALTNAME/.test(code)) return null;
  const problem = `its certificate is not trusted (${code})`;
  if (code === "CERT_HAS_EXPIRED") return { problem, fix: "renew it" };
  if (/ALTNAME/.test(code)) return { problem, fix: "create one for the host of the URL" };
  return { problem, fix: "name the file of its authority in NODE_EXTRA_CA_CERTS" };
}
