/** The default address of a server. It has its own file, because `waypost health` loads no other settings. */
export const defaultAddress = { host: "127.0.0.1", port: "8080" } as const;
