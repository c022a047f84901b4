/** Returns how many file descriptors this process may have. Null: there is no limit, or the system does not tell. */
export function descriptorLimit(): number | null {
  const { report } = process;
  // Else the names of all peers would be looked up.
  Object.assign(report, { excludeNetwork: true });
  const told: unknown = report.getReport();
  const limits = memberOf(told, "userLimits");
  const soft = memberOf(memberOf(limits, "open_files"), "soft");
  return typeof soft === "number" && soft > 0 ? soft : null;
}

const memberOf = (value: unknown, name: string): unknown =>
  typeof value === "object" && value !== null ? (value as Record<string, unknown>)[name] : undefined;
