import type { RevokedToken } from "../../engine/core/model/account.ts";
import type { AccountId } from "../../engine/core/values/basics.ts";
import { serverAccount } from "../../engine/core/values/basics.ts";
import type { Store } from "../../engine/store/store.ts";
import type { Series } from "./series.ts";

/** The kinds of subjects of series. */
export const subjectKinds = ["token", "source", "session", "unknown", "other"] as const;

/** Returns the kind of a subject. */
export function toSubjectKind(subject: string): (typeof subjectKinds)[number] {
  if (subject === "session" || subject === "unknown" || subject === "other") return subject;
  return subject.startsWith("src_") ? "source" : "token";
}

const ownTokens: Readonly<Record<string, string>> = {
  main: "main token",
  readOnly: "read-only token",
};

/** The name of a sender, which may be empty, and the rights of a token that was revoked. */
export type Sender = { name: string; rights: RevokedToken["rights"] | null };

/** Returns series with the names of their tokens and sources, also of tokens that were revoked. */
export async function nameSeries<Row extends { series: Series }>(
  { read }: Pick<Store, "read">,
  account: AccountId,
  all: readonly Row[],
): Promise<(Row & Sender)[]> {
  const owner = account === serverAccount ? null : await read.account(account);
  const findSender = async (subject: string): Promise<Sender> => {
    const own = ownTokens[subject];
    if (own !== undefined || owner === null) return toSender({ name: own ?? "" });
    if (subject.startsWith("src_")) return toSender(await read.findResource("sources", account, subject));
    if (!subject.startsWith("tok_")) return toSender(null);
    const token = await read.findResource("tokens", account, subject);
    if (token) return toSender(token);
    const revoked = owner.revoked?.find(({ id }) => id === subject);
    return { ...toSender(revoked), rights: revoked?.rights ?? null };
  };
  const subjects = [...new Set(all.map(({ series }) => series.subject))];
  const senders = new Map(
    await Promise.all(subjects.map(async (subject) => [subject, await findSender(subject)] as const)),
  );
  return all.map((row) => Object.assign(row, senders.get(row.series.subject) ?? toSender(null)));
}

const toSender = (of: { name: string } | null | undefined): Sender => ({
  name: of?.name ?? "",
  rights: null,
});
