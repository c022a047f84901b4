import { useFilters } from "./filters.tsx";

/** An order that the API has, as its parameters. Undefined: the default. */
export type Order = { name: string; sort?: string; order?: "earliestFirst" | "latestFirst" };

/** The orders of a list whose default is the oldest entry first. */
export const oldestFirst: readonly Order[] = [
  { name: "Oldest first" },
  { name: "Newest first", order: "latestFirst" },
];

/** The orders of a list whose default is the newest entry first. */
export const newestFirst: readonly Order[] = [
  { name: "Newest first" },
  { name: "Oldest first", order: "earliestFirst" },
];

/** Chooses the order of a list that has pages, which the server sorts. The order is in the address. */
export function OrderSelect({ orders }: { orders: readonly Order[] }) {
  const { values, set } = useFilters();
  const at = orders.findIndex(({ sort, order }) => sort === values["sort"] && order === values["order"]);
  return (
    <select
      className="input order"
      aria-label="Order"
      value={Math.max(0, at)}
      onChange={({ target }) => {
        const { sort, order } = orders[Number(target.value)] ?? {};
        set({ sort, order });
      }}
    >
      {orders.map(({ name }, index) => (
        <option key={name} value={index}>
          {name}
        </option>
      ))}
    </select>
  );
}
