import { expect, test } from "vitest";
import { parseDatabaseUrl } from "../../../../src/engine/store/postgres/url.ts";
import { StorageRefused } from "../../../../src/engine/store/layout/storageErrors.ts";

test.each([
  ["postgres://u:p@one/db", ["postgres://u:p@one/db"], false],
  ["postgres://one:5433/db?sslmode=verify-full", ["postgres://one:5433/db?sslmode=verify-full"], false],
  ["postgres://u:p@one:5432,two:5433/db", ["postgres://u:p@one:5432/db", "postgres://u:p@two:5433/db"], true],
  [
    "postgresql://u@[::1]:5432,two/db?target_session_attrs=read-write",
    ["postgresql://u@[::1]:5432/db", "postgresql://u@two/db"],
    true,
  ],
  [
    "postgres://u@one,two/db?target_session_attrs=any&sslmode=require",
    ["postgres://u@one/db?sslmode=verify-full", "postgres://u@two/db?sslmode=verify-full"],
    false,
  ],
  [
    "postgres://one/db?sslmode=require&target_session_attrs=primary",
    ["postgres://one/db?sslmode=verify-full"],
    true,
  ],
  [
    "postgres://one/db?sslmode=verify-ca&sslrootcert=/ca.pem",
    ["postgres://one/db?sslmode=verify-full&sslrootcert=/ca.pem"],
    false,
  ],
  [
    "postgres://one/db?sslmode=require&uselibpqcompat=true",
    ["postgres://one/db?sslmode=require&uselibpqcompat=true"],
    false,
  ],
  ["postgres://one/db?sslmode=no-verify", ["postgres://one/db?sslmode=no-verify"], false],
  ["postgres://u:a,b%40c@one/db", ["postgres://u:a,b%40c@one/db"], false],
])("%s gives a URL for each host", (url, urls, mustWrite) => {
  expect(parseDatabaseUrl(url)).toEqual({ urls, mustWrite });
});

test("an unsupported target is refused, and the error does not reveal the URL", () => {
  const refused = () => parseDatabaseUrl("postgres://u:secret@one,two/db?target_session_attrs=standby");
  expect(refused).toThrow(StorageRefused);
  expect(refused).toThrow(
    "target_session_attrs in the database URL: standby is not supported; use one of any, read-write, primary",
  );
  expect(refused).not.toThrow("secret");
});
