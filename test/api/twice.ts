// Files whose tests run twice, because two paths can answer plain publishes: the fast path
// (`src/api/fastPublish/`) and the framework. The second run has the environment variable FAST_PATH, which
// `testServer.ts` describes. `vitest.config.ts` has a project for each list. The tests of
// test/api/fastPublish/answer.test.ts compare both paths byte by byte.

/**
 * Files that publish with `ask`: to the framework, and with FAST_PATH=on over a connection to the fast path.
 */
export const againOnFastPath = [
  "test/api/publishing/refusedHosts.test.ts",
  "test/api/settings/{forward,hideHeaders}.test.ts",
  "test/api/routes/accounts/{limits,passive,storageQuota}.test.ts",
  "test/api/routes/messages/{batch,batchItems,deduplication,keepResponse,truncated}.test.ts",
  "test/api/routes/{groups/groupPublish,schedules/publishSchedule}.test.ts",
  "test/api/routes/workflows/{workflowInvoke,workflowPost,workflowPostRefused}.test.ts",
  "test/api/server/repeatedPublish.test.ts",
  "test/operations/sources/standardWebhooks.test.ts",
];

/**
 * Files that publish over their own connections: to the fast path, and with FAST_PATH=off to the framework.
 */
export const againOnFramework = [
  "test/api/auth/refusedRequests.test.ts",
  "test/api/http/{cors,requestBodyLimits,responseLimits}.test.ts",
  "test/api/route/pipelining.test.ts",
  "test/api/server/{destination,foreignPages,forwardedHeaders}.test.ts",
];
