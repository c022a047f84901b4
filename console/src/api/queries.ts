import { keepPreviousData, QueryClient, useQuery } from "@tanstack/react-query";
import type { UseQueryResult } from "@tanstack/react-query";
import type { Response, RouteName, Sent } from "./client.ts";
import { send, Trouble } from "./client.ts";
import { useLive } from "../shell/live.ts";

/** How often a list and an unfinished run are read again, in milliseconds. */
export const pace = { list: 5_000, run: 2_000, slow: 30_000 } as const;

export const queryClient = new QueryClient({
  defaultOptions: {
    queries: {
      // A refusal is final. Only a server that failed or did not respond gets the request again.
      retry: (count, error) =>
        error instanceof Trouble && (error.status === 0 || error.status >= 500) && count < 2,
      refetchOnWindowFocus: true,
      staleTime: 1_000,
    },
  },
});

type ReadOptions = { every?: number | null; enabled?: boolean; keep?: boolean };

/**
 * Reads a route and reads it again while the page is live. `every` is the pace in milliseconds; null reads
 * once. With `keep`, the rows of the previous parameters stay until the new ones are there.
 */
export function useRead<R extends RouteName>(
  route: R,
  sent: Omit<Sent<R>, "signal" | "body"> = {},
  { every = pace.list, enabled = true, keep = true }: ReadOptions = {},
): UseQueryResult<Response<R>> {
  const { isLive } = useLive();
  return useQuery({
    queryKey: [route, sent],
    queryFn: ({ signal }) => send(route, { ...sent, signal }),
    refetchInterval: isLive && every !== null ? every : false,
    enabled,
    ...(keep && { placeholderData: keepPreviousData }),
  });
}
