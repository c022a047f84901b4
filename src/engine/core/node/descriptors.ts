/**
 * The part of the file descriptors of a process that destinations may use. The rest is for clients, files and
 * the database.
 */
const destinationShare = 1 / 2;

/**
 * Returns how many deliveries a node that is configured for `capacity` deliveries may run at once. Also
 * returns how many sockets to destinations it may have, including idle ones. `descriptors` is the file
 * descriptor limit of the process, or null if it is not known.
 */
export function limitToDescriptors(
  descriptors: number | null,
  capacity: number,
): { capacity: number; sockets: number } {
  const maxDescriptors =
    descriptors === null ? Infinity : Math.max(1, Math.floor(descriptors * destinationShare));
  return { capacity: Math.min(capacity, maxDescriptors), sockets: Math.min(2 * capacity, maxDescriptors) };
}
