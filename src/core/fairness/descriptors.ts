/** Destinations may use at most this part of the file descriptors of a process. The rest is for senders, files and the database. */
const destinationShare = 1 / 2;

/**
 * Returns how many deliveries a node may run at once, and how many sockets to destinations it may have, idle ones included, if it is set
 * up for `capacity` deliveries. `descriptors`: how many file descriptors its process may have; null: nobody knows.
 */
export function limitToDescriptors(descriptors: number | null, capacity: number): { capacity: number; sockets: number } {
  const maxDescriptors = descriptors === null ? Infinity : Math.max(1, Math.floor(descriptors * destinationShare));
  return { capacity: Math.min(capacity, maxDescriptors), sockets: Math.min(2 * capacity, maxDescriptors) };
}
