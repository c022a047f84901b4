import type { Command } from "commander";
import { CommandFailed } from "./terminal/commandFailed.ts";
import { print } from "./terminal/terminal.ts";

/** The shells that a completion script can be written for. */
const shells = ["bash", "zsh", "fish"] as const;

/** Adds the command `waypost completion`, which prints a script for a shell. Add it after all others. */
export function addCompletionCommand(program: Command): void {
  program
    .command("completion")
    .description("print a script that completes commands and flags in a shell")
    .argument("<shell>", `shell: ${shells.join(", ")}`)
    .action((shell: string) => {
      const known = shells.find((one) => one === shell);
      if (known === undefined)
        throw new CommandFailed("usage", `shell: "${shell}" is unknown; use ${shells.join(", ")}`);
      print(scripts[known](collectWords(program)));
    });
}

/** The words and flags that may follow a command, each with its description. */
type Choices = { path: string; words: readonly (readonly [word: string, about: string])[] };

function collectWords(command: Command, path = ""): Choices[] {
  const names = command.commands.map((one) => [one.name(), firstLine(one.description())] as const);
  const flags = command.options.flatMap(({ long, description }) =>
    typeof long === "string" ? [[long, firstLine(description)] as const] : [],
  );
  return [
    { path, words: [...names, ...flags, ["--help", "help of this command"]] },
    ...command.commands.flatMap((one) => collectWords(one, `${path} ${one.name()}`.trim())),
  ];
}

const firstLine = (text: string): string => (text.split("\n")[0] ?? "").replaceAll(/['"`$\\:[\]]/g, "");

/** Returns the cases of a shell's `case`, with the words that may follow each command. */
const toCases = (choices: readonly Choices[], indent: string): string =>
  choices
    .map(({ path, words }) => `${indent}"${path}") words="${words.map(([word]) => word).join(" ")}" ;;`)
    .join("\n");

const scripts: Readonly<Record<(typeof shells)[number], (choices: readonly Choices[]) => string>> = {
  bash: (choices) => `# Completion of waypost for bash.
_waypost() {
  local current="\${COMP_WORDS[COMP_CWORD]}" path="" word words=""
  for word in "\${COMP_WORDS[@]:1:COMP_CWORD-1}"; do
    case "$word" in
      -*) ;;
      *) case " ${choices.map(({ path }) => path.replaceAll(" ", "/")).join(" ")} " in
        *" \${path:+$path/}$word "*) path="\${path:+$path/}$word" ;;
      esac ;;
    esac
  done
  case "\${path//\\// }" in
${toCases(choices, "    ")}
  esac
  COMPREPLY=($(compgen -W "$words" -- "$current"))
}
complete -o default -F _waypost waypost`,
  zsh: (choices) => `#compdef waypost
# Completion of waypost for zsh.
_waypost() {
  local place="" word known words_here words
  known=" ${choices.map(({ path }) => path.replaceAll(" ", "/")).join(" ")} "
  for word in "\${(@)words[2,CURRENT-1]}"; do
    [[ "$word" == -* ]] && continue
    [[ "$known" == *" \${place:+$place/}$word "* ]] && place="\${place:+$place/}$word"
  done
  case "\${place//\\// }" in
${toCases(choices, "    ").replaceAll('words="', 'words_here="')}
  esac
  compadd -- \${=words_here}
}
compdef _waypost waypost`,
  fish: (choices) =>
    [
      "# Completion of waypost for fish.",
      "function __waypost_at",
      "  set -l path",
      "  for word in (commandline -opc)[2..-1]",
      "    string match -q -- '-*' $word; and continue",
      `    contains -- (string join / $path $word) ${choices
        .map(({ path }) => path.replaceAll(" ", "/"))
        .filter(Boolean)
        .join(" ")}; and set -a path $word`,
      "  end",
      '  test "$path" = "$argv"',
      "end",
      ...choices.flatMap(({ path, words }) =>
        words.map(([word, about]) => {
          const condition = `complete -c waypost -n '__waypost_at ${path}'`;
          return word.startsWith("--")
            ? `${condition} -l ${word.slice(2)} -d '${about}'`
            : `${condition} -f -a ${word} -d '${about}'`;
        }),
      ),
    ].join("\n"),
};
