/** Reports whether an HTTP status means that a message was delivered: 200 to 299. */
export const isSuccessStatus = (status: number | null): boolean =>
  status !== null && status >= 200 && status <= 299;
