import type { Response } from "../../api/client.ts";
import { send } from "../../api/client.ts";
import { useRead } from "../../api/queries.ts";
import { useMay } from "../../api/session.ts";
import { PauseButton } from "../../parts/actions.tsx";
import { Button } from "../../parts/basics.tsx";
import { Whole } from "../../parts/cells.tsx";
import type { Condition, Reasons } from "../../parts/conditions.ts";
import { useReasons } from "../../parts/conditions.ts";
import { FilterBar, useFilters } from "../../parts/filters.tsx";
import { ListPanel } from "../../parts/list.tsx";
import { PublishLink } from "../../parts/link.tsx";
import { Loaded } from "../../parts/panel.tsx";
import { Reason } from "../../parts/reason.tsx";
import { State } from "../../parts/state.tsx";
import type { Column } from "../../parts/table.tsx";
import { Empty } from "../../parts/trouble.tsx";
import { formatCount, formatMany, formatSpan } from "../../parts/words.ts";
import { Page } from "../../shell/shell.tsx";
import { useDo } from "../../shell/toasts.tsx";
import { KeyDialog } from "./keyDialog.tsx";

type Key = Response<"GET /v2/flowControl">[number];

/** All flow control keys: their limits, their use, and the number of waiting messages. */
export function KeysPage() {
  const { values, set } = useFilters();
  const keys = useRead("GET /v2/flowControl", { query: { search: values["search"] } });
  const reasons = useReasons("key");
  const open = keys.data?.find(({ flowControlKey }) => flowControlKey === values["open"]);
  return (
    <Page title="Keys" count={keys.data && formatMany(keys.data.length, "key")}>
      <div className="toolbar">
        <FilterBar
          fields={[{ name: "search", title: "Contains" }]}
          fallback="search"
          placeholder="Filter by name"
        />
      </div>
      <Loaded query={keys} what="The keys">
        {(rows) =>
          // The rows wait for their reasons, so that nothing moves.
          !reasons.isPending && (
            <ListPanel
              label="Flow control keys"
              columns={makeColumns(reasons, (key) => set({ open: key }))}
              rows={rows.toSorted((one, other) => other.waitlistSize - one.waitlistSize)}
              keyOf={({ flowControlKey }) => flowControlKey}
              open={({ flowControlKey }) => set({ open: flowControlKey })}
              empty={
                <Empty title="No keys yet" actions={<PublishLink />}>
                  <p>
                    A key limits how many of its messages are in flight, and how many are sent per period. The
                    first message with the header Svc-Flow-Control-Key creates it.
                  </p>
                </Empty>
              }
            />
          )
        }
      </Loaded>
      {open && <KeyDialog key={open.flowControlKey} of={open} close={() => set({ open: undefined })} />}
    </Page>
  );
}

/** The words of the state column for keys that the server has found to make too little progress. */
const words: Partial<Record<Condition["kind"], string>> = {
  "key.blocked": "Blocked",
  "key.drowning": "Growing",
};

const makeColumns = ({ of }: Reasons, open: (key: string) => void): Column<Key>[] => [
  {
    head: "State",
    className: "c-state w-state",
    cell: ({ flowControlKey, isPaused, waitlistSize }) => {
      const kind = of(flowControlKey)?.kind;
      const word = kind && words[kind];
      if (isPaused) return <State state="paused" word="Paused" />;
      return word !== undefined || waitlistSize > 0 ? (
        <State state="held" word={word ?? "Holding"} />
      ) : (
        <State state="delivered" word="Open" />
      );
    },
  },
  {
    head: "Key",
    className: "c-what",
    sortBy: ({ flowControlKey }) => flowControlKey,
    cell: ({ flowControlKey }) => (
      <div className="l1">
        <Whole text={flowControlKey} isName />
      </div>
    ),
  },
  {
    head: "Why",
    className: "c-why w-why3",
    cell: (key) => <KeyReason of={key} condition={of(key.flowControlKey)} open={open} />,
  },
  {
    head: "Waiting",
    className: "num c-when w-s",
    sortBy: ({ waitlistSize }) => waitlistSize,
    cell: ({ waitlistSize }) => <b>{formatCount(waitlistSize)}</b>,
  },
  {
    head: "Parallelism",
    className: "num p3 w-m c-more",
    cell: ({ parallelismCount, parallelismMax }) =>
      parallelismMax > 0 ? `${formatCount(parallelismCount)} of ${formatCount(parallelismMax)}` : "no limit",
  },
  {
    head: "Rate",
    className: "num p4 w-where c-more",
    cell: ({ rateCount, rateMax, ratePeriod }) =>
      rateMax > 0
        ? `${formatCount(rateCount)} of ${formatCount(rateMax)} in ${formatSpan(ratePeriod * 1000)}`
        : "no limit",
  },
  {
    head: <span className="vh">Actions</span>,
    className: "act w-act2",
    cell: (key) => <PauseKey of={key} />,
  },
];

type KeyReasonProps = { of: Key; condition: Condition | undefined; open(key: string): void };

/** Returns which limit of a key is used up, for a key whose messages have not waited for long. */
function describeHolding({ parallelismMax, parallelismCount, rateMax, rateCount, ratePeriod }: Key): string {
  if (rateMax > 0 && rateCount >= rateMax)
    return `Has sent ${formatCount(rateMax)} in ${formatSpan(ratePeriod * 1000)}, which is its rate`;
  if (parallelismMax > 0 && parallelismCount >= parallelismMax)
    return `Has ${formatMany(parallelismMax, "message")} in flight, which is its parallelism`;
  return "Its messages are about to be sent";
}

/**
 * Why a key holds its messages, and the button that helps: limits that were pinned are unpinned, and others
 * are raised. A paused key has its button at the end of the row.
 */
function KeyReason({ of: key, condition, open }: KeyReasonProps) {
  const { flowControlKey: name, isPaused, isPinnedParallelism, isPinnedRate } = key;
  const may = useMay();
  const act = useDo();
  const isPinned = isPinnedParallelism || isPinnedRate;
  const query = { parallelism: isPinnedParallelism, rate: isPinnedRate };
  const unpin = () => send("POST /v2/flowControl/{key}/unpin", { params: { key: name }, query });
  const limits = [isPinnedParallelism && "Parallelism", isPinnedRate && "Rate"].filter(Boolean);
  const pinned = `${limits.join(" and ")} pinned`;
  return (
    <Reason
      condition={condition}
      name={name}
      otherwise={
        isPaused ? "Is paused" : key.waitlistSize > 0 ? describeHolding(key) : isPinned ? pinned : ""
      }
      {...(isPinned && { more: pinned })}
    >
      {isPinned && !isPaused && may.manage ? (
        <Button
          isSmall
          aria-label={`Unpin: ${name}`}
          onClick={() => void act(unpin, `The limits of key ${name} are unpinned`)}
        >
          Unpin
        </Button>
      ) : (
        condition?.kind !== "key.paused" &&
        condition && (
          <Button isSmall aria-label={`Limits: ${name}`} onClick={() => open(name)}>
            Limits
          </Button>
        )
      )}
    </Reason>
  );
}

const PauseKey = ({ of: { flowControlKey: key, isPaused } }: { of: Key }) => (
  <PauseButton
    name={`Key ${key}`}
    isPaused={isPaused}
    pause={() => send("POST /v2/flowControl/{key}/pause", { params: { key } })}
    resume={() => send("POST /v2/flowControl/{key}/resume", { params: { key } })}
  />
);
