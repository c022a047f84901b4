/**
 * The settings of the server as a whole, by id. An operation adds its setting beside its type. The store
 * encrypts them.
 */
export interface ServerSettings {}

/** The row of a setting of the server: its id, and its value under the same name. */
export type ServerSetting = { id: keyof ServerSettings } & Partial<ServerSettings>;
