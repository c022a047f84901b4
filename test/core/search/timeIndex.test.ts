import { expect, test } from "vitest";
import {
  dayOf,
  dayOfSighting,
  glance,
  ofDay,
  sightingsAt,
  sightsOf,
  sightsWanted,
  startOfDay,
} from "../../../src/core/search/timeIndex.ts";
import { noon } from "../broker.ts";

const day = 86_400_000;
const url = "https://shop.example/hook";

test("a message is sighted by its URL, host, path and caller", () => {
  const kinds = (sights: string): string[] => sights.split(" ").map((sight) => sight.slice(0, sight.indexOf(":")));
  expect(kinds(sightsOf({ url, callerIp: null }))).toEqual(["url", "host", "path"]);
  expect(kinds(sightsOf({ url, callerIp: "127.0.0.1" }))).toEqual(["url", "host", "path", "caller"]);
  expect(kinds(sightsOf({ url: "no url", callerIp: null }))).toEqual(["url"]);
});

test("a sighting stands for five seconds, within its day", () => {
  expect(glance).toBe(5_000);
  const [days, at] = [dayOf(noon), String(noon).padStart(13, "0")];
  expect(startOfDay(days)).toBe(noon - (noon % day));
  expect(sightingsAt("url:a host:b", noon)).toEqual([`${ofDay(days)}url:a ${at}`, `${ofDay(days)}host:b ${at}`]);
  expect(sightingsAt(undefined, noon)).toEqual([`${ofDay(days)}any ${at}`]);
  expect(ofDay(7)).toBe("000007 ");
  expect(sightingsAt("url:a", noon).map(dayOfSighting)).toEqual([days]);
});

test("a filter wants any of its values, and what nothing is known of", () => {
  const [sightOfUrl, sightOfHost, sightOfPath, sightOfCaller] = sightsOf({ url, callerIp: "::1" }).split(" ");
  expect(sightsWanted({ urls: [url, url], hosts: ["SHOP.example"], paths: ["/hook"], callerIps: ["::1"] })).toEqual([
    [sightOfUrl, "any"],
    [sightOfHost, "any"],
    [sightOfPath, "any"],
    [sightOfCaller, "any"],
  ]);
  expect(sightsWanted({ labels: ["a"] })).toEqual([]);
});
