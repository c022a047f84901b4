import { startArea } from "../area.ts";
import type { Session } from "../session.ts";

/** Dead letters: lists, retries, deletion. */
export async function recordDeadLetters(session: Session): Promise<void> {
  const area = await startArea(session, "dlq");
  for (const label of ["a", "b", "c", "d", "e"]) {
    const brand = label < "c" ? "Svc" : "Upstash";
    await area.publish(area.publishTo("500", label), {
      headers: {
        "content-type": "text/plain",
        [`${brand}-Retries`]: "0",
        [`${brand}-Label`]: label,
        [`${brand}-Forward-X`]: label,
      },
      body: `letter ${label}`,
    });
  }
  const list = await area.ask("GET", "/v2/dlq");
  const letters = list.json.messages as { label: string; dlqId: string }[];
  const ids = Object.fromEntries(letters.map(({ label, dlqId }) => [label, dlqId]));
  const page = await area.ask("GET", "/v2/dlq?count=2");
  await area.ask("GET", `/v2/dlq?count=2&cursor=${page.json.cursor}`);
  await area.ask("GET", "/v2/dlq?label=c");
  await area.ask("GET", `/v2/dlq?dlqIds=${ids["a"]},${ids["b"]}`);
  await area.ask("GET", "/v2/dlq?responseStatus=500&trimBody=4&count=1");
  await area.ask("GET", "/v2/dlq?count=many");
  await area.ask("GET", `/v2/dlq/${ids["a"]}`);
  await area.ask("GET", "/v2/dlq/1725323658779-0");
  await area.ask("GET", "/v2/dlq/nonsense");
  for (const label of ["a", "b", "c", "d"]) session.destination.mend(`/500/dlq.${label}`, "200");
  await area.ask("POST", `/v2/dlq/retry/${ids["a"]}`);
  await area.delivered("500", "a", 2);
  await area.ask("POST", `/v2/dlq/retry/${ids["a"]}`);
  await area.json("POST /v2/dlq/retry", { dlqIds: [ids["b"]] }, { headers: { "Svc-Retries": "1" } });
  await area.delivered("500", "b", 2);
  await area.ask("POST", "/v2/dlq/retry?label=c", {
    headers: { "Upstash-Forward-X": "new", "Upstash-Label": "again" },
  });
  await area.delivered("500", "c", 2);
  await area.ask("POST", "/v2/dlq/retry?label=none");
  await area.ask("DELETE", `/v2/dlq/${ids["d"]}`);
  await area.ask("DELETE", `/v2/dlq/${ids["d"]}`);
  await area.ask("DELETE", `/v2/dlq?dlqIds=${ids["e"]}&dryRun=true`);
  await area.ask("DELETE", `/v2/dlq?dlqIds=${ids["e"]}`);
  await area.json("DELETE /v2/dlq", {});
  await area.ask("GET", "/v2/dlq");
  await area.ask("GET", "/v2/audit");
}
