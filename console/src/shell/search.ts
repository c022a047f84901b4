import { useInfiniteQuery } from "@tanstack/react-query";
import { createContext, useEffect, useState } from "react";
import { send } from "../api/client.ts";
import { useMay, useSession } from "../api/session.ts";
import type { Found } from "./lookUp.ts";

/** Opens the palette with text in it. `from`: the list whose filter was typed into. */
export const SearchContext = createContext<(text: string, from?: string) => void>(() => undefined);

/** The text that the palette begins with. */
export type Opened = { text: string; from?: string };

/** The number of things at which a search stops, until the person asks for more. */
const enough = 20;
/** The shortest text that is searched for, in characters. */
const minLength = 2;
/** How long the text must stay the same before it is searched for, in milliseconds. */
const settling = 150;

/** A search for text, as far as it has come. */
export type SearchResult = {
  /** Null: nothing is known yet. */
  found: readonly Found[] | null;
  /** How much was searched so far, as a sentence. Empty if nothing was. */
  progress: string;
  error: Error | null;
  /** Continues a search that stopped because it found enough. Null: it has not stopped, or it is done. */
  more: (() => void) | null;
};

/** Searches for text on the server, page by page, until enough is found. */
export function useSearch(text: string): SearchResult {
  const settled = useSettled(text);
  const [wanted, setWanted] = useState(enough);
  useEffect(() => setWanted(enough), [settled]);
  const may = useMay();
  const { session } = useSession();
  const isSearched = settled.length >= minLength && settled === text && may.read && session.account !== null;
  const result = useInfiniteQuery({
    queryKey: ["GET /v2/search", settled],
    queryFn: ({ signal, pageParam }) =>
      send("GET /v2/search", { query: { query: settled, ...(pageParam && { cursor: pageParam }) }, signal }),
    initialPageParam: "",
    getNextPageParam: ({ cursor }) => cursor,
    enabled: isSearched,
    refetchOnWindowFocus: false,
    gcTime: 0,
  });
  const { data, hasNextPage, isFetching, error, fetchNextPage } = result;
  const pages = isSearched ? (data?.pages ?? []) : [];
  const found = pages.flatMap((page) => page.found);
  const isFull = found.length >= wanted;
  useEffect(() => {
    if (isSearched && hasNextPage && !isFetching && !isFull && error === null) void fetchNextPage();
  }, [isSearched, hasNextPage, isFetching, isFull, error, fetchNextPage]);
  return {
    found: pages.length > 0 ? found : null,
    progress: isSearched ? describe(pages, !hasNextPage && !isFetching) : "",
    error: isSearched ? error : null,
    more: isSearched && isFull && hasNextPage ? () => setWanted(found.length + enough) : null,
  };
}

type SearchPage = { searched: number; skipped: number };

function describe(pages: readonly SearchPage[], isDone: boolean): string {
  const searched = pages.reduce((sum, page) => sum + page.searched, 0);
  const skipped = pages.reduce((sum, page) => sum + page.skipped, 0);
  if (pages.length === 0) return "Searching…";
  const left = skipped === 0 ? "" : `; ${skipped.toLocaleString("en")} bodies are too large to search`;
  const what = `${searched.toLocaleString("en")} messages, dead letters and runs`;
  return isDone ? `Searched ${what}${left}` : `Searched ${what} so far…`;
}

/** Returns the text as it was when it last stayed the same for a moment. */
function useSettled(text: string): string {
  const [settled, setSettled] = useState(text);
  useEffect(() => {
    const timer = setTimeout(() => setSettled(text), settling);
    return () => clearTimeout(timer);
  }, [text]);
  return settled;
}
