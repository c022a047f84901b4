import { expect, test } from "vitest";
import { expectShown, findViolations } from "./measures.ts";
import { describeConsole } from "./openConsole.ts";
import { openPage } from "./pages.ts";
import { call } from "./seed.ts";

describeConsole("the page of what was not published", (open) => {
  test("shows duplicates and refused tokens by name, and the overview leads there", async () => {
    const { page, server } = open;
    const url = `${server.destinations.url}/ok/orders`;
    const headers = { "Svc-Deduplication-Id": "same order" };
    for (let at = 0; at < 3; at++) await call(server, `POST /v2/publish/${url}`, { headers });
    const made = (await call(server, "POST /v2/tokens", {
      body: JSON.stringify({ name: "nightly import", verbs: ["publish"] }),
    })) as { tokenId: string; token: string };
    await call(server, `DELETE /v2/tokens/${made.tokenId}`);
    const authorization = `Bearer ${made.token}`;
    const refused = await fetch(`${server.url}/v2/publish/${url}`, {
      method: "POST",
      headers: { authorization },
    });
    expect(refused.status).toBe(401);
    // The counts are stored when they are read here.
    await call(server, "GET /v2/unpublished");
    await openPage(page, server, "/");
    const need = page.getByText(/Token nightly import was refused: it was revoked or replaced/);
    await expectShown(need);
    await openPage(page, server, "/not-published");
    const row = page.getByRole("row").filter({ hasText: "nightly import" });
    await expectShown(row.getByText("The token was revoked or replaced."));
    await expectShown(row.getByText("Refused"));
    const duplicates = page.getByRole("row").filter({ hasText: "main token" });
    await expectShown(duplicates.getByText("Duplicate", { exact: true }));
    await expectShown(duplicates.getByText(/^Id same order, first used by msg_/));
    await expectShown(page.getByText("Per hour"));
    expect(await findViolations(page)).toEqual([]);
    await duplicates.getByRole("link").click();
    await expectShown(
      page
        .locator(".drawer")
        .getByText(/orders/)
        .first(),
    );
    expect(page.url()).toContain("open=msg_");
    await expectShown(page.locator(".drawer").getByText("same order"));
    await expectShown(page.locator(".drawer").getByText(/A repeated message is dropped until/));
  });
});
