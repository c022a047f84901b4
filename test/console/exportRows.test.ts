import { readFile } from "node:fs/promises";
import { expect, test } from "vitest";
import { toCsvFile, toJsonFile } from "../../console/src/parts/exportRows.ts";
import { expectShown, findViolations } from "./measures.ts";
import { describeConsole } from "./openConsole.ts";
import { openPage } from "./pages.ts";

test("CSV has a column for each member, and quotes what needs it", () => {
  const rows = [
    { id: "msg_1", note: 'a "b", c', tags: ["x", "y"] },
    { id: "msg_2", count: -3, isLast: true, none: null },
  ];
  expect(toCsvFile(rows)).toBe(
    "id,note,tags,count,isLast,none\r\n" +
      'msg_1,"a ""b"", c","[""x"",""y""]",,,\r\n' +
      "msg_2,,,-3,true,\r\n",
  );
  expect(JSON.parse(toJsonFile(rows))).toEqual(rows);
});

test("no value of a stranger becomes a formula", () => {
  for (const text of ["=1+1", "+1", "-1", "@SUM(A1)", "\t=1", "\r=1", " =1", "\n=cmd|' /C calc'!A0"])
    expect(toCsvFile([{ label: text }])).toBe(`label\r\n"'${text}"\r\n`);
  expect(toCsvFile([{ "=x": "a=b" }])).toBe('"\'=x"\r\na=b\r\n');
});

describeConsole("lists", (open) => {
  test("are saved as CSV, as they are listed", async () => {
    const { page, server } = open;
    await openPage(page, server, "/messages?state=held");
    const [saved] = await Promise.all([
      page.waitForEvent("download"),
      page.getByRole("button", { name: "Save as CSV: Unfinished messages" }).click(),
    ]);
    expect(saved.suggestedFilename()).toBe("unfinished-messages.csv");
    const lines = (await readFile(await saved.path(), "utf8")).trim().split("\r\n");
    expect(lines[0]).toMatch(/^messageId,state,/);
    expect(lines.length - 1).toBe(await page.locator("tbody tr").count());
    expect(await findViolations(page)).toEqual([]);
  });

  test("send a message that waits for its time now, from its row", async () => {
    const { page, server } = open;
    await openPage(page, server, "/messages?label=reminder");
    const row = page.getByRole("row").filter({ hasText: "/ok/later" });
    await row.getByRole("button", { name: "Send now" }).click();
    await expectShown(page.getByText("The message is sent now"));
  });
});
