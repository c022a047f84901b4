import { startArea } from "../area.ts";
import type { Session } from "../session.ts";

/** Reading and cancelling messages, and the filters of the log. */
export async function recordMessages(session: Session): Promise<void> {
  const area = await startArea(session, "messages");
  const later = async (label: string, headers: Record<string, string> = {}) => {
    const { json } = await area.ask("POST", area.publishTo("200", label), {
      headers: { "content-type": "text/plain", "Svc-Delay": "1h", ...headers },
      body: label,
    });
    return json.messageId as string;
  };
  const one = await later("one", {
    "Svc-Label": "x",
    "Svc-Forward-A": "b",
    "Svc-Callback": area.url("callback", "one"),
  });
  const two = await later("two", {
    "Upstash-Label": "y",
    "Upstash-Retries": "1",
    "Upstash-Retry-Delay": "pow(2, retried)",
  });
  const three = await later("three", {
    "Svc-Flow-Control-Key": "k",
    "Svc-Flow-Control-Value": "parallelism=1",
  });
  const hidden = await later("hidden", { "Svc-Redact-Fields": "body,headers" });
  for (const id of [one, two, three, hidden]) await area.ask("GET", `/v2/messages/${id}`);
  await area.ask("GET", `/v2/logs?messageId=${one}`);
  await area.ask("DELETE", `/v2/messages/${one}`);
  await area.ask("DELETE", `/v2/messages/${one}`);
  await area.ask("GET", `/v2/messages/${one}`);
  await area.ask("DELETE", `/v2/messages?label=y`);
  await area.ask("DELETE", `/v2/messages?flowControlKey=k&dryRun=true`);
  await area.json("DELETE /v2/messages", { messageIds: [three, "msg_unknown"] });
  await later("four");
  await later("five");
  await area.ask("DELETE", `/v2/messages?url=${encodeURIComponent(area.url("200", "four"))}`);
  await area.ask("DELETE", "/v2/messages/");
  await area.ask("DELETE", "/v2/messages?all=true");
  await area.ask("DELETE", "/v2/messages?nonsense=1");
  await area.eventually("/v2/logs?state=CANCELLED", ({ events }) => events?.length >= 6);
  await area.publish(area.publishTo("held", "sent").replace("/held/", "/200/"), { body: "now" });
  const { json } = await area.ask("POST", area.publishTo("held", "sent"), { body: "held" });
  await session.destination.until("/held/messages.sent", 1);
  await area.ask("GET", `/v2/messages/${json.messageId}`);
  await area.ask("GET", "/v2/logs?state=ACTIVE");
  await area.ask("GET", "/v2/globalParallelism");
  session.destination.release("/held/messages.sent");
  await session.settled(json.messageId, area.account.token);
  const first = await area.ask("GET", "/v2/logs?count=2");
  await area.ask("GET", `/v2/logs?count=2&cursor=${first.json.cursor}`);
  const queries = [
    "order=earliestFirst&count=2",
    "state=IN_PROGRESS",
    "state=DELIVERED&messageIds=a,b",
    "toDate=2",
  ];
  for (const query of queries) await area.ask("GET", `/v2/events?${query}`);
  const wrong = ["cursor=nonsense", "count=0", "state=LOST", "fromDate=soon", "trimBody=0", "unknown=1"];
  for (const query of wrong) await area.ask("GET", `/v2/logs?${query}`);
}
