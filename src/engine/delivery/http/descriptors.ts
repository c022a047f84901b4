/**
 * Returns the limit of file descriptors of this process, or null if there is none or the system does not
 * report it.
 */
export function descriptorLimit(): number | null {
  const { report } = process;
  // Without this the report would look up the names of all peers.
  Object.assign(report, { excludeNetwork: true });
  const diagnostics: unknown = report.getReport();
  const limits = readMember(diagnostics, "userLimits");
  const soft = readMember(readMember(limits, "open_files"), "soft");
  return typeof soft === "number" && soft > 0 ? soft : null;
}

const readMember = (value: unknown, name: string): unknown =>
  typeof value === "object" && value !== null ? (value as Record<string, unknown>)[name] : undefined;
