import type { StorageReads } from "../../engine/store/layout/storageReads.ts";
import type { StoredOperation } from "../../engine/store/layout/storedOperation.ts";
import { nothingStored } from "../../engine/store/layout/storedOperation.ts";
import type { SearchPosition, SearchedSlice, Wanted } from "./slices.ts";
import { searchSlice } from "./slices.ts";

/** The search for text in unfinished and failed work. */
export const search = {
  ...nothingStored,
  createQueries: (reads: StorageReads) => ({
    /** Searches the next rows of an account for text: at most 100 rows, and at most 1 MiB of their bodies. */
    searchSlice: (of: Wanted & { position: SearchPosition }): Promise<SearchedSlice> =>
      searchSlice(reads, of),
  }),
} satisfies StoredOperation;
