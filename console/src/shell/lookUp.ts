import type { LucideIcon } from "lucide-react";
import { Bell, Clock, Gauge, Inbox, ListOrdered, Mail, ArrowDownToLine } from "lucide-react";
import { ScrollText, Search, Split, Tag, Workflow } from "lucide-react";
import type { Response } from "../api/client.ts";
import { places } from "./places.ts";

/** Something that was found. */
export type Found = Response<"GET /v2/search">["found"][number];

/** Something that the palette can open. */
export type Choice = {
  to: string;
  search?: Record<string, string>;
  name: string;
  about: string;
  icon: LucideIcon;
  /** The part of `about` that was searched for. */
  wanted?: string;
  /** Whether the other filters of the list stay. */
  keepsFilters?: boolean;
  /** The dead letter that the choice opens, which can also be retried at once. */
  dlqId?: string;
};

/** Returns the pages whose names contain a string, and what an id of a known form opens. */
export function findPlaces(text: string): readonly Choice[] {
  const words = text.toLowerCase();
  const pages = places
    .flatMap((group) => group.pages)
    .filter(({ name }) => name.toLowerCase().includes(words))
    .map(({ to, name, icon, key }): Choice => ({ to, name, icon, about: key ? `g ${key}` : "" }));
  return text === "" ? pages : [...findByForm(text), ...pages];
}

/** Returns what an id names by its form, before the server has found it. */
function findByForm(text: string): Choice[] {
  if (/^msg_\w+$/.test(text)) return [openMessage(text, text)];
  if (/^\d{13}-\d+$/.test(text)) return [openDeadLetter(text, text)];
  if (/^wfr_\S+$/.test(text)) return [openRun(text, text)];
  if (/^https?:\/\//.test(text))
    return [
      {
        to: "/messages",
        search: { url: text },
        name: "Messages to exactly this URL",
        about: text,
        icon: Search,
      },
    ];
  return [];
}

const openMessage = (id: string, about: string): Choice => ({
  ...{ to: "/messages", search: { open: id }, name: "Message", about, icon: Mail },
});
const openDeadLetter = (id: string, about: string): Choice => ({
  ...{ to: "/dead-letters", search: { open: id }, name: "Dead letter", about, icon: Inbox, dlqId: id },
});
const openRun = (id: string, about: string): Choice => ({
  ...{ to: `/runs/${encodeURIComponent(id)}`, name: "Run", about, icon: Workflow },
});

/** How each kind of thing is opened. */
const openers: { readonly [K in Found["kind"]]: (id: string, about: string) => Choice } = {
  message: openMessage,
  deadLetter: openDeadLetter,
  run: openRun,
  event: (_id, about) => ({ to: "/events", name: "Event", about, icon: Bell }),
  queue: (id, about) => ({
    ...{ to: `/queues/${encodeURIComponent(id)}`, name: "Queue", about, icon: ListOrdered },
  }),
  flowControlKey: (id, about) => ({
    to: "/keys",
    search: { search: id, open: id },
    name: "Key",
    about,
    icon: Gauge,
  }),
  schedule: (id, about) => ({ to: "/schedules", search: { open: id }, name: "Schedule", about, icon: Clock }),
  urlGroup: (_id, about) => ({ to: "/url-groups", name: "URL group", about, icon: Split }),
  source: (_id, about) => ({ to: "/sources", name: "Source", about, icon: ArrowDownToLine }),
};

const partNames: { readonly [P in Found["part"]]: string } = {
  ...{ id: "", label: "label", url: "URL", error: "error", response: "response", body: "body" },
};

/** Returns how something that was found is opened. A message that was found by its id has its log as well. */
export function toChoices({ kind, id, part, excerpt }: Found, wanted: string): Choice[] {
  const choice = openers[kind](id, part === "id" || excerpt === id ? id : excerpt);
  const name = partNames[part] === "" ? choice.name : `${choice.name} · ${partNames[part]}`;
  const shown = { ...choice, name, wanted };
  if (kind !== "message" || part !== "id") return [shown];
  const log = { to: "/messages", search: { view: "log", messageId: id } };
  return [shown, { ...log, name: "Its log", about: id, icon: ScrollText, wanted }];
}

/** Returns the choice that filters a list by a label. */
export const filterByLabel = (to: string, label: string, keepsFilters: boolean): Choice => ({
  ...{ to, search: { label }, name: "With exactly this label", about: label, icon: Tag, keepsFilters },
});
