import type { LucideIcon } from "lucide-react";
import { Gauge, LayoutGrid, ListOrdered, Mail } from "lucide-react";

/** A page of the console. `key` follows `g` on the keyboard. */
export type Place = { to: string; name: string; icon: LucideIcon; key?: string };

/** The pages, in the order of the navigation. */
export const places: readonly { title: string | null; pages: readonly Place[] }[] = [
  { title: null, pages: [{ to: "/", name: "Overview", icon: LayoutGrid, key: "o" }] },
  {
    title: "Work",
    pages: [{ to: "/messages", name: "Messages", icon: Mail, key: "m" }],
  },
  {
    title: "Flow",
    pages: [
      { to: "/queues", name: "Queues", icon: ListOrdered, key: "q" },
      { to: "/keys", name: "Keys", icon: Gauge, key: "k" },
    ],
  },
];
