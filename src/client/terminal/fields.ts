import { toSafeLine, toSafeText } from "./safeText.ts";

/** An object of a response. Its texts are not safe to print: read them with the functions of this file. */
export type Fields = Readonly<Record<string, unknown>>;

/** Reports whether a value is a JSON object. */
export const isObject = (value: unknown): value is Fields =>
  typeof value === "object" && value !== null && !Array.isArray(value);

/** Returns a field as it was received, or "". For requests, never for the terminal. */
export function readRaw(fields: Fields, name: string): string {
  const value = fields[name];
  return typeof value === "string" || typeof value === "number" ? String(value) : "";
}

/** Returns a field as one line that is safe to print, or "" if it is absent. */
export function readLine(fields: Fields, name: string): string {
  const value = fields[name];
  if (value === undefined || value === null) return "";
  return toSafeLine(typeof value === "string" ? value : JSON.stringify(value));
}

/** Returns a field as text that is safe to print, with its line breaks, or "" if it is absent. */
export function readText(fields: Fields, name: string): string {
  const value = fields[name];
  return typeof value === "string" ? toSafeText(value) : "";
}

/** Returns a number, or null if the field is absent. */
export function readNumber(fields: Fields, name: string): number | null {
  const value = fields[name];
  return typeof value === "number" ? value : null;
}

/** Returns an object, or an empty one if the field is absent. */
export function readObject(fields: Fields, name: string): Fields {
  const value = fields[name];
  return isObject(value) ? value : {};
}

/** Returns the objects of a list, or an empty list if the field is absent. */
export function readObjects(fields: Fields, name: string): Fields[] {
  const value = fields[name];
  return Array.isArray(value) ? value.filter(isObject) : [];
}

/** Returns the texts of a list as lines that are safe to print. */
export function readLines(fields: Fields, name: string): string[] {
  const value = fields[name];
  return Array.isArray(value) ? value.map((item) => toSafeLine(String(item))) : [];
}
