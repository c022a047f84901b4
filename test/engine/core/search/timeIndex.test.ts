import { expect, test } from "vitest";
import {
  createTimeKeyTest,
  toDayNumber,
  readTimeIndexDay,
  indexInterval,
  dayPrefix,
  listTimeIndexIds,
  makeTimeIndexKeys,
  listWantedTimeKeys,
  startOfDay,
} from "../../../../src/engine/core/search/timeIndex.ts";
import { noon } from "../commandRunner.ts";

const day = 86_400_000;
const url = "https://shop.example/hook";

test("a message is indexed by its URL, host, path and caller", () => {
  const kinds = (sights: string): string[] =>
    sights.split(" ").map((sight) => sight.slice(0, sight.indexOf(":")));
  expect(kinds(makeTimeIndexKeys({ url, callerIp: null }))).toEqual(["url", "host", "path"]);
  expect(kinds(makeTimeIndexKeys({ url, callerIp: "127.0.0.1" }))).toEqual(["url", "host", "path", "caller"]);
  expect(kinds(makeTimeIndexKeys({ url: "no url", callerIp: null }))).toEqual(["url"]);
});

test("an entry covers five seconds, within its day", () => {
  expect(indexInterval).toBe(5_000);
  const days = toDayNumber(noon);
  const at = String(noon).padStart(13, "0");
  expect(startOfDay(days)).toBe(noon - (noon % day));
  expect(listTimeIndexIds("url:a host:b", noon)).toEqual([
    `${dayPrefix(days)}url:a ${at}`,
    `${dayPrefix(days)}host:b ${at}`,
  ]);
  expect(listTimeIndexIds(undefined, noon)).toEqual([`${dayPrefix(days)}any ${at}`]);
  expect(dayPrefix(7)).toBe("000007 ");
  expect(listTimeIndexIds("url:a", noon).map(readTimeIndexDay)).toEqual([days]);
});

test("a filter uses any of its values, and intervals without recorded keys", () => {
  const [sightOfUrl, sightOfHost, sightOfPath, sightOfCaller] = makeTimeIndexKeys({
    url,
    callerIp: "::1",
  }).split(" ");
  expect(
    listWantedTimeKeys({ urls: [url, url], hosts: ["SHOP.example"], paths: ["/hook"], callerIps: ["::1"] }),
  ).toEqual([
    [sightOfUrl, "any"],
    [sightOfHost, "any"],
    [sightOfPath, "any"],
    [sightOfCaller, "any"],
  ]);
  expect(listWantedTimeKeys({ labels: ["a"] })).toEqual([]);
});

test.each([
  [{ urls: [url] }, true],
  [{ urls: ["https://shop.example/other"] }, false],
  [{ hosts: ["other.example", "SHOP.example"] }, true],
  [{ hosts: ["other.example"] }, false],
  [{ paths: ["/hook"], callerIps: ["127.0.0.1"] }, true],
  [{ paths: ["/hook"], callerIps: ["127.0.0.2"] }, false],
  [{ paths: ["/other"], callerIps: ["127.0.0.1"] }, false],
  [{ labels: ["a"] }, true],
  [{ paths: Array.from({ length: 51 }, (_, n) => `/${n}`) }, true],
])("by its time keys alone, a message may match %j: %s", (filter, mayMatch) => {
  expect(createTimeKeyTest(filter)(makeTimeIndexKeys({ url, callerIp: "127.0.0.1" }))).toBe(mayMatch);
});

test("a message without a caller matches no caller", () => {
  const mayMatch = createTimeKeyTest({ callerIps: ["127.0.0.1"] });
  expect(mayMatch(makeTimeIndexKeys({ url, callerIp: null }))).toBe(false);
});
