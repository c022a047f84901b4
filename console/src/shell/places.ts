import type { LucideIcon } from "lucide-react";
import {
  Activity,
  ArrowDownToLine,
  Bell,
  CircleSlash,
  Clock,
  Database,
  Gauge,
  Inbox,
  LayoutGrid,
  ListChecks,
  ListOrdered,
  Mail,
  OctagonX,
  Send,
  Server,
  Settings2,
  ShieldCheck,
  Split,
  Workflow,
} from "lucide-react";

/** A page of the console. `key` follows `g` on the keyboard. */
export type Place = { to: string; name: string; icon: LucideIcon; key?: string };

/** The pages, in the order of the navigation. */
export const places: readonly { title: string | null; pages: readonly Place[] }[] = [
  { title: null, pages: [{ to: "/", name: "Overview", icon: LayoutGrid, key: "o" }] },
  {
    title: "Work",
    pages: [
      { to: "/messages", name: "Messages", icon: Mail, key: "m" },
      { to: "/runs", name: "Runs", icon: Workflow, key: "r" },
    ],
  },
  {
    title: "Failed",
    pages: [
      { to: "/dead-letters", name: "Dead letters", icon: Inbox, key: "d" },
      { to: "/failed-runs", name: "Failed runs", icon: OctagonX, key: "f" },
    ],
  },
  {
    title: "Flow",
    pages: [
      { to: "/queues", name: "Queues", icon: ListOrdered, key: "q" },
      { to: "/keys", name: "Keys", icon: Gauge, key: "k" },
      { to: "/hosts", name: "Hosts", icon: Server, key: "h" },
    ],
  },
  {
    title: "Inputs",
    pages: [
      { to: "/schedules", name: "Schedules", icon: Clock, key: "s" },
      { to: "/url-groups", name: "URL groups", icon: Split, key: "u" },
      { to: "/sources", name: "Sources", icon: ArrowDownToLine, key: "w" },
      { to: "/not-published", name: "Not published", icon: CircleSlash, key: "n" },
      { to: "/outboxes", name: "Outboxes", icon: Database, key: "b" },
      { to: "/events", name: "Events", icon: Bell, key: "e" },
    ],
  },
  {
    title: "Tools",
    pages: [
      { to: "/publish", name: "Publish", icon: Send, key: "p" },
      { to: "/tail", name: "Tail", icon: Activity, key: "t" },
      { to: "/jobs", name: "Jobs", icon: ListChecks, key: "j" },
    ],
  },
  { title: null, pages: [{ to: "/settings", name: "Settings", icon: Settings2, key: "," }] },
];

/** The page of the operator, which only a session of the operator has. */
export const operatorPlace: Place = { to: "/operator", name: "Operator", icon: ShieldCheck };
