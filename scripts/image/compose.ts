/** The variables of a service. */
export type Environment = Record<string, string>;

/** Fills in the variables of a service from a file, as Compose does for `${NAME:-default}`. */
export const fillIn = (
  environment: Environment,
  file: Readonly<Record<string, string | undefined>>,
): Environment =>
  Object.fromEntries(
    Object.entries(environment).map(([name, text]) => [
      name,
      text.replace(
        /\$\{(\w+):-(.*?)\}/,
        (_all, variable: string, otherwise: string) => file[variable] ?? otherwise,
      ),
    ]),
  );
