/** A group of pages in the navigation: the title of each page and its file in the repository. */
type Group = { title: string; pages: Readonly<Record<string, string>> };

/** The pages of the documentation in the order of the navigation. Decision records are added after them. */
export const groups: readonly Group[] = [
  {
    title: "Start",
    pages: {
      Introduction: "README.md",
      "Quickstart: first message": "docs/quickstart.md",
      "Migrating from QStash": "docs/guides/migrating-from-qstash.md",
      "Compatible clients": "docs/guides/compatible-clients.md",
      "Testing applications": "docs/guides/testing-applications.md",
    },
  },
  {
    title: "Concepts",
    pages: {
      "Key concepts in five minutes": "docs/key-concepts.md",
      "Delivery semantics": "docs/delivery-semantics.md",
      "Retries and timeouts": "docs/retries-and-timeouts.md",
      "Message lifecycle": "docs/lifecycle.md",
      "Why is this waiting?": "docs/guides/why-is-this-waiting.md",
    },
  },
  {
    title: "How-to",
    pages: {
      Recipes: "docs/guides/recipes.md",
      Receiving: "docs/guides/receiving.md",
      "Unfinished messages": "docs/guides/messages.md",
      Queues: "docs/guides/queues.md",
      "Flow control": "docs/guides/flow-control.md",
      Schedules: "docs/guides/schedules.md",
      "URL groups": "docs/guides/url-groups.md",
      "Deduplication and redaction": "docs/guides/deduplication-and-redaction.md",
      "Dead letters and logs": "docs/guides/dead-letters-and-logs.md",
      Jobs: "docs/guides/jobs.md",
      Webhooks: "docs/guides/webhooks.md",
      Workflows: "docs/guides/workflows.md",
    },
  },
  {
    title: "Operate",
    pages: {
      "Production checklist": "docs/production-checklist.md",
      Operating: "docs/guides/operating.md",
      Configuration: "docs/configuration.md",
      "Accounts and plans": "docs/guides/accounts.md",
      "Tokens and secrets": "docs/guides/tokens.md",
      Console: "docs/guides/console.md",
      "Command line": "docs/guides/command-line.md",
      Troubleshooting: "docs/guides/troubleshooting.md",
      Overview: "docs/guides/overview.md",
      Monitoring: "docs/guides/monitoring.md",
      Alerts: "docs/guides/alerts.md",
      "PostgreSQL and several nodes": "docs/guides/scaling.md",
      "Versions and upgrades": "docs/versioning.md",
      Changelog: "CHANGELOG.md",
    },
  },
  {
    title: "Reference",
    pages: {
      "API reference": "docs/reference/README.md",
      "Message settings": "docs/reference/settings.md",
      Shapes: "docs/reference/shapes.md",
      Limits: "docs/reference/limits.md",
      Errors: "docs/errors.md",
      "Texts of errors and the log": "docs/messages.md",
      Vocabulary: "docs/vocabulary.md",
    },
  },
  {
    title: "API requests",
    pages: {
      Publish: "docs/reference/publish.md",
      "URL groups": "docs/reference/url-groups.md",
      Messages: "docs/reference/messages.md",
      Accounts: "docs/reference/accounts.md",
      "Dead letter queue": "docs/reference/dead-letter-queue.md",
      Log: "docs/reference/log.md",
      Schedules: "docs/reference/schedules.md",
      Queues: "docs/reference/queues.md",
      "Flow control": "docs/reference/flow-control.md",
      "Signing keys": "docs/reference/signing-keys.md",
      Tokens: "docs/reference/tokens.md",
      Workflows: "docs/reference/workflows.md",
      "Workflow runs": "docs/reference/workflow-runs.md",
      Events: "docs/reference/events.md",
      "Failed workflow runs": "docs/reference/failed-workflow-runs.md",
      Administration: "docs/reference/administration.md",
      Health: "docs/reference/health.md",
      Jobs: "docs/reference/jobs.md",
      Alerts: "docs/reference/alerts.md",
      "Audit log": "docs/reference/audit-log.md",
      Overview: "docs/reference/overview.md",
      Sources: "docs/reference/sources.md",
    },
  },
  {
    title: "Internals",
    pages: {
      Architecture: "docs/architecture.md",
      "Life of a batch": "docs/life-of-a-batch.md",
      "Security design": "docs/security.md",
      "Reporting a vulnerability": "SECURITY.md",
      Contributing: "CONTRIBUTING.md",
      Style: "docs/style.md",
      Testing: "docs/testing.md",
      Benchmarks: "bench/README.md",
      Decisions: "docs/decisions/README.md",
    },
  },
];

/** Documents without a page on the site. The package registry shows this one. */
export const filesWithoutPage: readonly string[] = ["docs/package.md"];
