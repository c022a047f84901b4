import { KeyRound } from "lucide-react";
import type { ReactNode } from "react";
import { CopyButton, Icon } from "./basics.tsx";
import { Visible } from "./visible.tsx";

/** New secrets by their names, each with a button that copies it. */
export const Secrets = ({ rows }: { rows: readonly (readonly [name: string, secret: string])[] }) => (
  <dl className="kv">
    {rows.map(([name, secret]) => (
      <div key={name} className="pair">
        <dt>{name}</dt>
        <dd className="secret">
          <code>{secret}</code>
          <CopyButton text={secret} label={`Copy: ${name}`} />
        </dd>
      </div>
    ))}
  </dl>
);

/** A new secret, which the server shows only once. */
export const NewSecret = ({
  title,
  secret,
  children,
}: {
  title: string;
  secret: string;
  children: ReactNode;
}) => (
  <section className="callout good" role="status">
    <Icon of={KeyRound} />
    <div>
      <h2>
        <Visible text={title} />
      </h2>
      <p>{children}</p>
      <div className="secret">
        <code>{secret}</code>
        <CopyButton text={secret}>Copy</CopyButton>
      </div>
    </div>
  </section>
);
