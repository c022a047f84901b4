import { useId } from "react";
import { Field } from "../../parts/dialog.tsx";
import type { Setting } from "./publishSettings.ts";
import { callbacks, callbackSettings, ofCallback } from "./publishSettings.ts";

/** The HTTP methods of a delivery. */
export const methods = ["POST", "GET", "PUT", "PATCH", "DELETE"];

type Values = Readonly<Record<string, string>>;
type FieldsProps = { values: Values; set(name: string, value: string): void };

/** One field for each setting. */
export const SettingFields = ({ settings, values, set }: FieldsProps & { settings: readonly Setting[] }) =>
  settings.map((setting) => (
    <SettingField
      key={setting.name}
      setting={setting}
      value={values[setting.name] ?? ""}
      set={(value) => set(setting.name, value)}
    />
  ));

type FieldProps = { setting: Setting; value: string; set(value: string): void };

function SettingField({ setting, value, set }: FieldProps) {
  const { title, hint, example, as, isWide } = setting;
  if (as === "check") return <CheckField setting={setting} value={value} set={set} />;
  const common = {
    className: "input mono",
    value,
    onChange: (event: { target: { value: string } }) => set(event.target.value),
  };
  return (
    <Field name={title} hint={hint} className={isWide ? "" : "h3"}>
      {as === "lines" ? (
        <textarea {...common} rows={2} spellCheck={false} placeholder={example} />
      ) : as === "method" ? (
        <select {...common}>
          <option value="">POST</option>
          {methods.slice(1).map((one) => (
            <option key={one}>{one}</option>
          ))}
        </select>
      ) : (
        <input {...common} {...(as === "time" && { type: "datetime-local" })} placeholder={example} />
      )}
    </Field>
  );
}

function CheckField({ setting: { title, hint }, value, set }: FieldProps) {
  const id = useId();
  return (
    <div className="field">
      <label className="choice">
        <input
          className="check"
          type="checkbox"
          aria-describedby={id}
          checked={value === "true"}
          onChange={(event) => set(event.target.checked ? "true" : "")}
        />
        {title}
      </label>
      <span className="hint" id={id}>
        {hint}
      </span>
    </div>
  );
}

/** Both callbacks: the URL of each, and then its own settings. */
export const CallbackFields = ({ values, set }: FieldsProps) =>
  callbacks.map((callback) => {
    const { name, title } = callback;
    return (
      <div key={name} className="stack" role="group" aria-label={title}>
        <SettingFields
          settings={[{ ...callback, example: "https://…", isWide: true }]}
          values={values}
          set={set}
        />
        {(values[name] ?? "") !== "" && (
          <details>
            <summary>Settings of the {title.toLowerCase()}</summary>
            <div className="fields">
              <SettingFields
                settings={callbackSettings.map((setting) => ofCallback(name, setting))}
                values={values}
                set={set}
              />
            </div>
          </details>
        )}
      </div>
    );
  });
