/** The code of an error, and the path of its documentation, as bodies of errors have them. */
export const codeFields = (code: string): { code: string; docs: string } => ({
  code,
  docs: `/docs/errors#${code}`,
});
