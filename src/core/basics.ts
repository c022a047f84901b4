/** Unix time, or a length of time, in milliseconds. Names tell which: `dueAt`, `createdAt`; `timeout`, `delay`. */
export type Millis = number;
export type Bytes = Uint8Array;
export type AccountId = string;
export type MessageId = string;
/** Names in canonical form (`Content-Type`), in order, repeated where they came repeated. */
export type HeaderList = readonly (readonly [name: string, value: string])[];
