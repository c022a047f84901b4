import { useState } from "react";
import { apiBase } from "../api/client.ts";
import { CopyButton } from "./basics.tsx";
import { Visible } from "./visible.tsx";

/** A request of the API, shown as code. */
export type CodeOf = {
  method: string;
  path: string;
  headers?: Readonly<Record<string, string>>;
  body?: string | undefined;
};

const origin = (): string => apiBase.href.replace(/\/$/, "");
const quoteShell = (text: string): string => `'${text.replaceAll("'", String.raw`'\''`)}'`;

/** Returns a request as a command for curl. */
function toCurl({ method, path, headers = {}, body }: CodeOf): string {
  const lines = [
    `curl -X ${method} ${quoteShell(`${origin()}${path}`)}`,
    '-H "Authorization: Bearer $TOKEN"',
    ...Object.entries(headers).map(([name, value]) => `-H ${quoteShell(`${name}: ${value}`)}`),
    ...(body === undefined ? [] : [`-d ${quoteShell(body)}`]),
  ];
  return lines.join(" \\\n  ");
}

/** Returns a request as TypeScript that needs no package. */
function toTypeScript({ method, path, headers = {}, body }: CodeOf): string {
  const all = Object.entries(headers).map(
    ([name, value]) => `    ${JSON.stringify(name)}: ${JSON.stringify(value)},`,
  );
  return [
    `await fetch(${JSON.stringify(`${origin()}${path}`)}, {`,
    `  method: ${JSON.stringify(method)},`,
    "  headers: {",
    "    Authorization: `Bearer ${process.env.TOKEN}`,",
    ...all,
    "  },",
    ...(body === undefined ? [] : [`  body: ${JSON.stringify(body)},`]),
    "});",
  ].join("\n");
}

/** Returns a request as Python with the package `requests`. */
function toPython({ method, path, headers = {}, body }: CodeOf): string {
  const all = Object.entries(headers).map(
    ([name, value]) => `        ${JSON.stringify(name)}: ${JSON.stringify(value)},`,
  );
  return [
    "import os, requests",
    "",
    "requests.request(",
    `    ${JSON.stringify(method)},`,
    `    ${JSON.stringify(`${origin()}${path}`)},`,
    "    headers={",
    '        "Authorization": f"Bearer {os.environ[\'TOKEN\']}",',
    ...all,
    "    },",
    ...(body === undefined ? [] : [`    data=${JSON.stringify(body)}.encode(),`]),
    ")",
  ].join("\n");
}

const languages = { curl: toCurl, TypeScript: toTypeScript, Python: toPython } as const;

type AsCodeProps = { of: Omit<CodeOf, "headers"> & { json?: unknown } };

/** The request of a form as code, folded. */
export const AsCode = ({ of: { json, ...of } }: AsCodeProps) => (
  <details>
    <summary>As code</summary>
    <Codes
      of={{
        ...of,
        ...(json !== undefined && {
          headers: { "Content-Type": "application/json" },
          body: JSON.stringify(json),
        }),
      }}
    />
  </details>
);

/** A request as code, to copy. */
export function Codes({ of }: { of: CodeOf }) {
  const [language, setLanguage] = useState<keyof typeof languages>("curl");
  const text = languages[language](of);
  return (
    <div className="codes-one">
      <div className="toolbar">
        <div className="seg" role="group" aria-label="Language">
          {(Object.keys(languages) as (keyof typeof languages)[]).map((one) => (
            <button key={one} type="button" aria-pressed={one === language} onClick={() => setLanguage(one)}>
              {one}
            </button>
          ))}
        </div>
        <span className="spring" />
        <CopyButton text={text}>Copy</CopyButton>
      </div>
      <div className="code">
        <pre tabIndex={0} aria-label={`As ${language}`}>
          <Visible text={text} />
        </pre>
      </div>
    </div>
  );
}
