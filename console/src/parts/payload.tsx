import { Download, Eye } from "lucide-react";
import { useMemo, useState } from "react";
import { Button, CopyButton, Icon } from "./basics.tsx";
import { countHidden } from "./hidden.ts";
import { download } from "./download.ts";
import type { JsonLine, Token } from "./jsonText.ts";
import { formatJson, readLink } from "./jsonText.ts";
import { Visible } from "./visible.tsx";
import { formatBytes } from "./words.ts";

/** The length up to which a body is shown at first. */
const cut = 16 * 1024;

type PayloadProps = {
  /** The body as text, or as base64 if it is not text. */
  text?: string | undefined;
  base64?: string | undefined;
  label: string;
  /** Reports whether the server kept only the beginning. */
  isCut?: boolean | undefined;
};

/** A body from an unknown sender. It is shown as text, never as markup, with every hidden character. */
export function Payload({ text, base64, label, isCut = false }: PayloadProps) {
  const bytes = useMemo(() => toBytes(text, base64), [text, base64]);
  const whole = text ?? new TextDecoder().decode(bytes);
  const [isWhole, setIsWhole] = useState(false);
  const lines = useMemo(() => (whole.length <= cut || isWhole ? formatJson(whole) : null), [whole, isWhole]);
  const isLong = whole.length > cut && !isWhole;
  const modes = [...(lines ? ["JSON"] : []), "Raw", "Hex"];
  const [chosen, setMode] = useState<string | null>(null);
  const mode = chosen !== null && modes.includes(chosen) ? chosen : (modes[0] ?? "Raw");
  if (bytes.length === 0) return <p className="muted">{label}: empty</p>;
  const hiddenCount = countHidden(isLong ? whole.slice(0, cut) : whole);
  return (
    <div className="payload">
      <header>
        <div className="seg" role="group" aria-label={`View of: ${label}`}>
          {modes.map((one) => (
            <button key={one} type="button" aria-pressed={one === mode} onClick={() => setMode(one)}>
              {one}
            </button>
          ))}
        </div>
        <span className="end">
          <CopyButton text={whole} label={`Copy: ${label}`} />
          <Button
            kind="ghost"
            isSmall
            icon={Download}
            label={`Download: ${label}`}
            onClick={() => download(bytes, "body.bin")}
          />
        </span>
      </header>
      <pre tabIndex={0} aria-label={label}>
        {mode === "JSON" && lines
          ? lines.map((line, at) => <JsonRow key={at} line={line} />)
          : mode === "Hex"
            ? toHex(isLong ? bytes.subarray(0, cut) : bytes).map((line, at) => <span key={at}>{line}</span>)
            : (isLong ? whole.slice(0, cut) : whole).split("\n").map((line, at) => (
                <span key={at}>
                  <Visible text={line} />
                </span>
              ))}
      </pre>
      {(isLong || isCut || hiddenCount > 0) && (
        <footer>
          <Icon of={Eye} size="s" />
          <span>
            {[
              hiddenCount > 0 &&
                `${hiddenCount} hidden ${hiddenCount === 1 ? "character" : "characters"} shown`,
              isLong && `${formatBytes(cut)} of ${formatBytes(bytes.length)} shown`,
              isCut && "truncated by the server",
            ]
              .filter(Boolean)
              .join(", ")}
          </span>
          {isLong && (
            <span className="end">
              <Button kind="ghost" isSmall onClick={() => setIsWhole(true)}>
                Load all
              </Button>
            </span>
          )}
        </footer>
      )}
    </div>
  );
}

function toBytes(text: string | undefined, base64: string | undefined): Uint8Array<ArrayBuffer> {
  if (base64 === undefined) return new TextEncoder().encode(text ?? "");
  return Uint8Array.from(atob(base64), (letter) => letter.codePointAt(0) ?? 0);
}

const JsonRow = ({ line: { depth, tokens } }: { line: JsonLine }) => (
  <span>
    {"  ".repeat(depth)}
    {tokens.map((token, at) => (
      <JsonToken key={at} token={token} />
    ))}
  </span>
);

function JsonToken({ token: { kind, text } }: { token: Token }) {
  const link = kind === "string" ? readLink(text) : null;
  if (link !== null)
    return (
      <a className="quiet" href={link} target="_blank" rel="noreferrer noopener">
        {text}
      </a>
    );
  if (kind === "key" || kind === "string")
    return (
      <span className={kind === "key" ? "j-key" : undefined}>
        <Visible text={text} />
      </span>
    );
  return <span className={kind === "number" ? "j-num" : undefined}>{text}</span>;
}

/** Returns bytes as lines of 16, in hex and as text. */
function toHex(bytes: Uint8Array): string[] {
  const lines: string[] = [];
  for (let at = 0; at < bytes.length; at += 16) {
    const row = [...bytes.subarray(at, at + 16)];
    const hex = row.map((byte) => byte.toString(16).padStart(2, "0")).join(" ");
    const text = row.map((byte) => (byte >= 0x20 && byte < 0x7f ? String.fromCharCode(byte) : "·")).join("");
    lines.push(`${at.toString(16).padStart(6, "0")}  ${hex.padEnd(47)}  ${text}`);
  }
  return lines;
}

/** The headers of a request or a response, as text. */
export const Headers = ({ headers }: { headers: Readonly<Record<string, readonly string[]>> }) => (
  <dl className="kv">
    {Object.entries(headers).map(([name, values]) => (
      <div key={name} className="pair">
        <dt>
          <Visible text={name} />
        </dt>
        <dd className="mono">
          <Visible text={values.join(", ")} />
        </dd>
      </div>
    ))}
  </dl>
);
