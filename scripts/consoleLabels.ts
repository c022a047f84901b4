import type { Locator, Page } from "playwright-core";

type Label = {
  /** Finds what the label is on. A frame is drawn around all elements. */
  find: (page: Page) => Locator;
  /** Where the number is. Left of the frame by default. */
  side?: "right";
};

/** A picture of the guide: a page of the console with numbered labels, which the guide explains. */
type LabelledPicture = {
  /** The name of the page in `listPages`. */
  page: string;
  file: string;
  height: number;
  /** In the order of the numbers. */
  labels: readonly Label[];
};

/** The pictures of `docs/guides/console.md`. The overview is last, when all runs have come to rest. */
export const guidePictures: readonly LabelledPicture[] = [
  {
    page: "message",
    file: "console-message",
    height: 625,
    labels: [
      { find: (page) => page.locator(".drawer section p").first() },
      { find: (page) => page.locator(".drawer .ahead") },
      { find: (page) => page.locator(".drawer .gates") },
      { find: (page) => page.getByRole("link", { name: "Message ahead" }), side: "right" },
      { find: (page) => page.getByRole("button", { name: "Cancel" }) },
    ],
  },
  {
    page: "run",
    file: "console-run",
    height: 980,
    labels: [
      { find: (page) => page.locator(".callout") },
      { find: (page) => page.locator(".hero .actions") },
      { find: (page) => page.locator(".tl-axis") },
      { find: (page) => page.locator(".tl-row.in") },
      { find: (page) => page.locator(".tl-detail .cols") },
    ],
  },
  {
    page: "overview",
    file: "console-overview",
    height: 772,
    labels: [
      { find: (page) => page.locator(".needs").first() },
      { find: (page) => page.getByRole("button", { name: "Resume queue" }), side: "right" },
      { find: (page) => page.locator(".needs").nth(1) },
      { find: (page) => page.locator(".stats") },
      {
        find: (page) => page.locator("nav.side").getByRole("link", { name: /^(Messages|Runs)/ }),
        side: "right",
      },
    ],
  },
];

/** Draws a frame with a number around what each label is on. */
export async function drawLabels(page: Page, labels: readonly Label[]): Promise<void> {
  const parts = (await Promise.all(labels.map((label, at) => toParts(page, label, at + 1)))).flat();
  // Plain JavaScript. It sets no markup, because the policy of the page does not allow that.
  await page.evaluate(`for (const { text, style } of ${JSON.stringify(parts)}) {
    const part = document.body.appendChild(document.createElement("div"));
    part.textContent = text;
    part.style.cssText = style;
  }`);
}

/** The distance of a frame from what is in it, in pixels. */
const gap = 4;

const color = "#bf3989";

/** Returns the frame and the number of a label. */
async function toParts(page: Page, { find, side }: Label, number: number) {
  const { left, top, width, height } = await findFrame(find(page));
  const place = (x: number, y: number) => `position: fixed; z-index: 1000; left: ${x}px; top: ${y}px;`;
  const size = `box-sizing: border-box; width: ${width}px; height: ${height}px;`;
  const circle = `width: 26px; border-radius: 13px; background: ${color};`;
  const digit = "color: white; font: 600 15px/26px system-ui, sans-serif; text-align: center;";
  const circleLeft = side === "right" ? left + width - 2 : left - 24;
  return [
    { text: "", style: `${place(left, top)} ${size} border: 2px solid ${color}; border-radius: 8px` },
    { text: `${number}`, style: `${place(circleLeft, top + height / 2 - 13)} ${circle} ${digit}` },
  ];
}

/** Returns the frame around all elements of a locator, in pixels of the window. */
async function findFrame(found: Locator) {
  await found.first().waitFor();
  const boxes = await Promise.all((await found.all()).map((element) => element.boundingBox()));
  const all = boxes.filter((box) => box !== null);
  const left = Math.min(...all.map(({ x }) => x)) - gap;
  const top = Math.min(...all.map(({ y }) => y)) - gap;
  const right = Math.max(...all.map(({ x, width }) => x + width)) + gap;
  const bottom = Math.max(...all.map(({ y, height }) => y + height)) + gap;
  return { left, top, width: right - left, height: bottom - top };
}
