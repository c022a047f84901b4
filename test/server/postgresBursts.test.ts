// @module-tag long
import { request } from "undici";
import { expect, onTestFinished, test } from "vitest";
import { startPostgres } from "../postgres.ts";
import { startNodes } from "./nodes.ts";
import { readCredentials, runWaypost } from "./waypost.ts";

const most = 25;

test("three servers on one database enforce an account's limit of requests per second together", async () => {
  const postgres = await startPostgres();
  onTestFinished(() => postgres.kill());
  const { nodes, token } = await startNodes(postgres.url, ["one", "two", "three"]);
  const credentials = await readCredentials("--database-url", postgres.url);
  const [, account = ""] = /WAYPOST_ACCOUNT_ID="(.*)"/.exec(credentials) ?? [];
  const limits = runWaypost([
    "account",
    "limits",
    account,
    "--requests-per-second",
    `${most}`,
    "--database-url",
    postgres.url,
  ]);
  expect(await limits.ended).toMatchObject({ code: 0 });

  const ask = async (url: string) => {
    const answer = await request(`${url}/v2/queues`, { headers: { authorization: `Bearer ${token}` } });
    await answer.body.dump();
    const { headers } = answer;
    const of = (name: string): number => Number(headers[`burst-ratelimit-${name}`]);
    return {
      status: answer.statusCode,
      limit: of("limit"),
      remaining: of("remaining"),
      reset: of("reset"),
    };
  };
  type Answer = Awaited<ReturnType<typeof ask>>;
  const answers: (Answer & { node: string })[] = [];
  const refusedIn = (): Set<number> =>
    new Set(answers.filter(({ status }) => status === 429).map(({ reset }) => reset));
  const client = async ({ url, name }: { url: string; name: string }): Promise<void> => {
    while (refusedIn().size < 4) answers.push({ ...(await ask(url)), node: name });
  };
  // A node that knows the limit states it in every response.
  for (const { url } of nodes) while ((await ask(url)).limit !== most);
  await Promise.all(nodes.flatMap((node) => [client(node), client(node)]));

  expect(new Set(answers.map(({ status }) => status))).toEqual(new Set([200, 429]));
  const bySecond = Map.groupBy(answers, ({ reset }) => reset);
  for (const [reset, all] of bySecond) {
    const answered = all.filter(({ status }) => status === 200);
    expect(answered.length, `${reset}`).toBeLessThanOrEqual(most);
    for (const { limit, remaining } of answered) expect([limit, remaining < most]).toEqual([most, true]);
  }
  for (const { status, remaining } of answers) if (status === 429) expect(remaining).toBe(0);
  expect(new Set(answers.filter(({ status }) => status === 200).map(({ node }) => node))).toEqual(
    new Set(["one", "two", "three"]),
  );
});
