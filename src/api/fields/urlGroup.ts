import type { Endpoint, UrlGroup } from "../../engine/core/model/urlGroup.ts";
import { headerMap } from "../../engine/core/sending/callback.ts";
import type { HeaderList } from "../../engine/core/values/basics.ts";
import type { FieldsOf } from "./field.ts";
import { headers, list, longText, optional, text, time } from "./field.ts";
import { damagedMark } from "./message.ts";

const endpointFields: FieldsOf<Endpoint> = {
  name: optional(text)("Name of the endpoint in the group. Absent if it has none.", ({ name }) => name),
  url: longText("URL of the endpoint.", ({ url }) => url),
};

/** The fields of a URL group. `shownHeaders` are its headers without what its settings hide. */
export const groupFields = {
  name: text("Name of the URL group.", ({ name }) => name, "GROUP"),
  createdAt: time("Time of creation, in Unix milliseconds.", ({ createdAt }) => createdAt),
  updatedAt: time(
    "Time of the last change of its endpoints or default headers, in Unix milliseconds.",
    ({ updatedAt }) => updatedAt,
    "CHANGED",
  ),
  endpoints: list(endpointFields)(
    "Endpoints of the group. Empty in a response to a token without the verb `read`.",
    ({ endpoints }) => endpoints,
  ),
  headers: optional(headers)(
    "Default headers: settings that apply to every request to the group unless the request has them. " +
      "Maps each name to a list of values. Absent if there are none.",
    ({ shownHeaders }) => (shownHeaders.length > 0 ? headerMap(shownHeaders) : null),
  ),
  damaged: damagedMark(({ damaged }) => damaged),
} satisfies FieldsOf<UrlGroup & { shownHeaders: HeaderList }>;
