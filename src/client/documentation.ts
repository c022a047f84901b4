import type { Command } from "commander";

/** The page of the documentation for each command, below `/docs` of a server. */
export const documentationPages: Readonly<Record<string, string>> = {
  account: "guides/accounts",
  alerts: "guides/alerts",
  apply: "guides/apply",
  backup: "guides/backups",
  completion: "guides/command-line",
  config: "configuration",
  connect: "guides/pull",
  credentials: "guides/installing",
  dev: "quickstart",
  dlq: "guides/dead-letters",
  doctor: "guides/diagnosing",
  "flow-control": "guides/flow-control",
  groups: "guides/url-groups",
  health: "guides/installing",
  hosts: "guides/overview",
  jobs: "guides/jobs",
  keys: "guides/secrets-at-rest",
  listen: "quickstart",
  login: "guides/command-line",
  logout: "guides/command-line",
  logs: "guides/log",
  messages: "guides/messages",
  "migrate-store": "guides/moving-a-store",
  outbox: "guides/outbox",
  overview: "guides/overview",
  publish: "guides/command-line",
  pulled: "guides/pull",
  queues: "guides/queues",
  restore: "guides/backups",
  runs: "guides/workflow-failures",
  schedules: "guides/schedules",
  search: "guides/overview",
  sources: "guides/webhooks",
  start: "guides/installing",
  stats: "guides/statistics",
  token: "guides/tokens",
  trigger: "quickstart-workflow",
  unhold: "guides/backups",
  unpublished: "guides/not-published",
};

/** Ends the help of each command with the address of its documentation. Call it after all commands exist. */
export function linkDocumentation(program: Command): void {
  program.addHelpText("after", formatLink(""));
  for (const command of program.commands)
    command.addHelpText("afterAll", formatLink(documentationPages[command.name()] ?? ""));
}

const formatLink = (page: string): string => `\nDocumentation: <url of the server>/docs/${page}`;
