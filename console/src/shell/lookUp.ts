import type { LucideIcon } from "lucide-react";
import { Inbox, ListOrdered, Mail, ScrollText, Search, Workflow } from "lucide-react";
import { places } from "./places.ts";

/** Something that the palette can open. */
export type Choice = {
  to: string;
  search?: Record<string, string>;
  name: string;
  about: string;
  icon: LucideIcon;
};

/**
 * Returns what a string can mean: an id by its kind, or else a filter, and the pages whose names contain it.
 */
export function findPlaces(typed: string): readonly Choice[] {
  const text = typed.trim();
  const words = text.toLowerCase();
  const pages = places
    .flatMap((group) => group.pages)
    .filter(({ name }) => name.toLowerCase().includes(words))
    .map(({ to, name, icon, key }): Choice => ({ to, name, icon, about: key ? `g ${key}` : "" }));
  return text === "" ? pages : [...findById(text), ...pages];
}

/** Returns what an id or another text may name. The prefix of an id tells its kind. */
function findById(text: string): Choice[] {
  if (text.startsWith("msg_"))
    return [
      { to: "/messages", search: { open: text }, name: "Message", about: text, icon: Mail },
      {
        to: "/messages",
        search: { view: "log", messageId: text },
        name: "Its log",
        about: text,
        icon: ScrollText,
      },
    ];
  if (/^\d{13}-\d+$/.test(text))
    return [{ to: "/dead-letters", search: { open: text }, name: "Dead letter", about: text, icon: Inbox }];
  if (text.startsWith("wfr_"))
    return [{ to: `/runs/${encodeURIComponent(text)}`, name: "Run", about: text, icon: Workflow }];
  if (/^https?:\/\//.test(text))
    return [{ to: "/messages", search: { url: text }, name: "Messages to URL", about: text, icon: Search }];
  return [
    { to: "/messages", search: { label: text }, name: "Messages with label", about: text, icon: Mail },
    { to: `/runs/${encodeURIComponent(text)}`, name: "Run", about: text, icon: Workflow },
    { to: `/queues/${encodeURIComponent(text)}`, name: "Queue", about: text, icon: ListOrdered },
  ];
}
