// The business functions of this example.

export type Item = { name: string; price: number };
/** An order. `carrier` is the URL of a third party's service that prints labels. */
export type Order = { id: string; items: Item[]; carrier: string };

const total = (items: readonly Item[]): number => items.reduce((sum, { price }) => sum + price, 0);

export function charge(order: string, items: readonly Item[]): { amount: number; receipt: string } {
  if (process.env.PAYMENT === "down") throw new Error("the payment service is down");
  console.log(`  charged ${total(items)} for order ${order}`);
  return { amount: total(items), receipt: `receipt-${order}` };
}

export function reserve(items: readonly Item[]): string {
  console.log(`  reserved ${items.map(({ name }) => name).join(", ")}`);
  return "shelf 7";
}

export function notifyWarehouse(order: string, tracking: string): void {
  console.log(`  the warehouse packs order ${order}, parcel ${tracking}`);
}

export function writeInvoice(number: string, items: readonly Item[]): { number: string; total: number } {
  console.log(`  wrote invoice ${number}`);
  return { number, total: total(items) };
}
