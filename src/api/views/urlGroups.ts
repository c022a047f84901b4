import { z } from "zod";
import { headerMap } from "../../engine/core/sending/callback.ts";
import type { UrlGroup } from "../../engine/core/model/urlGroup.ts";
import { redactSettings } from "../publishing/keptSettings.ts";
import { damaged } from "./schemas.ts";

const endpointSchema = z.object({
  name: z.string().optional().describe("Name of the endpoint in the group. Absent if it has none."),
  url: z.string().describe("URL of the endpoint."),
});

/** A URL group, as the API shows it. */
export const groupSchema = z.object({
  name: z.string().describe("Name of the URL group."),
  createdAt: z.int().describe("Time of creation, in Unix milliseconds."),
  updatedAt: z
    .int()
    .describe("Time of the last change of its endpoints or default headers, in Unix milliseconds."),
  endpoints: z
    .array(endpointSchema)
    .describe("Endpoints of the group. Empty in a response to a token without the verb `read`."),
  headers: z
    .record(z.string(), z.array(z.string()))
    .optional()
    .describe(
      "Default headers: settings that apply to every request to the group unless the request has them. " +
        "Maps each name to a list of values. Absent if there are none.",
    ),
  damaged,
});

/** Returns a URL group as the API shows it, with redacted settings. */
export function groupJson({
  name,
  createdAt,
  updatedAt,
  endpoints,
  headers,
  damaged,
}: UrlGroup): z.output<typeof groupSchema> {
  return {
    name,
    createdAt,
    updatedAt,
    endpoints: endpoints.map((one) =>
      one.name === null ? { url: one.url } : { name: one.name, url: one.url },
    ),
    ...(headers.length === 0 ? {} : { headers: headerMap(redactSettings(headers)) }),
    ...(damaged && { damaged }),
  };
}
