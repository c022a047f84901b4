/** Returns how many file descriptors this process may have. Null: there is no limit, or the system does not tell. */
export function descriptorLimit(): number | null {
  const { report } = process;
  // Else the names of all peers would be looked up.
  Object.assign(report, { excludeNetwork: true });
  const diagnostics: unknown = report.getReport();
  const limits = readMember(diagnostics, "userLimits");
  const soft = readMember(readMember(limits, "open_files"), "soft");
  return typeof soft === "number" && soft > 0 ? soft : null;
}

const readMember = (value: unknown, name: string): unknown =>
  typeof value === "object" && value !== null ? (value as Record<string, unknown>)[name] : undefined;
