import type { SyntheticEvent } from "react";
import { useState } from "react";
import { logIn, useSession } from "../api/session.ts";
import type { Login } from "../api/session.ts";
import { Field, useAction } from "../parts/dialog.tsx";
import { Button } from "../parts/basics.tsx";
import { readField } from "../parts/words.ts";
import { Mark } from "../shell/brand.tsx";
import { operatorPlace } from "../shell/places.ts";

const ways = ["Account", "Token", "Operator"] as const;
type Way = (typeof ways)[number];

/** Reports whether the page of the operator was asked for. */
const isAtOperator = (): boolean => location.pathname.endsWith(operatorPlace.to);

/** The login: with an account's password, a token, or the operator's password. */
export function LoginPage() {
  const { session, setSession } = useSession();
  const [way, setWay] = useState<Way>(session.hasOperator && isAtOperator() ? "Operator" : "Account");
  const { isBusy, error, run, clear } = useAction();
  const submit = (event: SyntheticEvent<HTMLFormElement>): void => {
    event.preventDefault();
    const given = new FormData(event.currentTarget);
    if (!isBusy) void run(async () => setSession(await logIn(toLogin(way, given))));
  };
  const shown = ways.filter((one) => one !== "Operator" || session.hasOperator);
  return (
    <div className="login">
      <main>
        <h1 className="brand">
          <Mark size={28} />
          Waypost
        </h1>
        <form className="panel" onSubmit={submit}>
          <div className="body">
            <div className="seg" role="group" aria-label="How to sign in">
              {shown.map((one) => (
                <button
                  key={one}
                  type="button"
                  aria-pressed={one === way}
                  onClick={() => {
                    setWay(one);
                    clear();
                  }}
                >
                  {one}
                </button>
              ))}
            </div>
            <LoginFields key={way} way={way} error={error} />
            <Button kind="primary" type="submit" disabled={isBusy}>
              Sign in
            </Button>
          </div>
        </form>
        <p className="foot">
          A read-only token opens a read-only session. A session ends after 12 hours, or when its credential
          is replaced.
        </p>
      </main>
    </div>
  );
}

function toLogin(way: Way, given: FormData): Login {
  const read = (name: string): string => readField(given, name);
  const name = read("name");
  if (way === "Token") return { token: read("secret").trim(), name };
  if (way === "Operator") return { operatorPassword: read("secret"), name };
  return { account: read("account").trim(), password: read("secret"), name };
}

/** Returns a refusal of the server without the name of its field, which the page shows anyway. */
const toSentence = (text: string): string => {
  const words = text.replace(/^[^\s:]+: /, "");
  return `${words.charAt(0).toUpperCase()}${words.slice(1)}.`;
};

function LoginFields({ way, error }: { way: Way; error: unknown }) {
  const isPassword = way !== "Token";
  const refusal = error instanceof Error ? toSentence(error.message) : null;
  return (
    <>
      {way === "Account" && (
        <Field name="Account">
          <input className="input" name="account" autoComplete="username" autoFocus required />
        </Field>
      )}
      <div className="field">
        <label className="label" htmlFor="secret">
          {isPassword ? "Password" : "Token"}
        </label>
        <input
          id="secret"
          className={`input ${isPassword ? "" : "mono"}`}
          name="secret"
          type="password"
          autoComplete={isPassword ? "current-password" : "off"}
          autoFocus={way !== "Account"}
          required
          aria-invalid={refusal !== null}
          aria-describedby={refusal === null ? undefined : "refusal"}
        />
        {refusal !== null && (
          <span className="error" id="refusal" role="alert">
            {refusal}
          </span>
        )}
      </div>
      <Field name="Your name" isOptional hint="The audit log shows it with your changes.">
        <input className="input" name="name" autoComplete="name" maxLength={100} />
      </Field>
    </>
  );
}
