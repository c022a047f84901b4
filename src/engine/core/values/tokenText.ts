/**
 * Returns a token: the base64 of a JSON object with `UserID` and `Password`. Existing clients read the user
 * id from a token, so it must have this form.
 */
export const makeToken = (id: string, password: string): string =>
  Buffer.from(JSON.stringify({ UserID: id, Password: password })).toString("base64");
