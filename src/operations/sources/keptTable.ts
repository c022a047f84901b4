import { parseDetail, readNumber, readText } from "../../engine/store/layout/columns.ts";
import { plaintextCipher } from "../../engine/store/layout/keyRing.ts";
import type { Table } from "../../engine/store/layout/table.ts";
import type { KeptCall, WholeCall } from "./keptCall.ts";

type StoredCall = Omit<WholeCall, "body"> & { body: string };

const toSubject = ({ account, id }: Pick<KeptCall, "account" | "id">): string => `kept call ${account} ${id}`;

/** The table of rejected calls that are kept whole. Their content is encrypted if the store has keys. */
export const keptCallTable: Table<KeptCall> = {
  name: "kept_calls",
  columns: { account: "text", id: "text", due_at: "bigint", detail: "text" },
  key: ["account", "id"],
  write: (call, cipher = plaintextCipher) => {
    const { account, id, dueAt, time, whole } = call;
    const content: StoredCall = { ...whole, body: Buffer.from(whole.body).toString("base64") };
    const sealed = cipher.encrypt(content, toSubject(call));
    const detail = sealed === null ? { time, content } : { time, sealed };
    return { account, id, due_at: dueAt, detail: JSON.stringify(detail) };
  },
  read: (row, cipher = plaintextCipher) => {
    const { time, content, sealed } = parseDetail<{ time: number; content?: StoredCall; sealed?: string }>(
      row,
    );
    const account = readText(row.account);
    const id = readText(row.id);
    const stored = content ?? (cipher.decrypt(sealed ?? "", toSubject({ account, id })) as StoredCall);
    const whole = { ...stored, body: new Uint8Array(Buffer.from(stored.body, "base64")) };
    return { account, id, dueAt: readNumber(row.due_at), time, whole };
  },
};
