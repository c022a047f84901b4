/** Reports whether an HTTP status says that a message was delivered: 200 to 299. */
export const isSuccessStatus = (status: number | null): boolean => status !== null && status >= 200 && status <= 299;
