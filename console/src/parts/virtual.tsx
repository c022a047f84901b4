import type { ReactNode } from "react";
import { useLayoutEffect, useRef, useState } from "react";

/** The number of rows that are drawn above and below the visible ones. */
const spare = 12;
/** The height of a row until one was measured, in pixels. */
const usualHeight = 34;

type VirtualRowsProps = {
  count: number;
  /** Draws the row at an index. All rows have the same height. */
  children(index: number): ReactNode;
};

/** Many rows of one height. Only those near the visible part of the page are drawn. */
export function VirtualRows({ count, children }: VirtualRowsProps) {
  const place = useRef<HTMLDivElement>(null);
  const [height, setHeight] = useState(usualHeight);
  const [{ from, to }, setRange] = useState({ from: 0, to: Math.min(count, 60) });
  useLayoutEffect(() => {
    const update = (): void => {
      const element = place.current;
      if (!element) return;
      const row = element.firstElementChild?.getBoundingClientRect().height || height;
      const above = -element.getBoundingClientRect().top;
      const first = clamp(Math.floor(above / row) - spare, count);
      const last = clamp(Math.ceil((above + innerHeight) / row) + spare, count);
      setHeight(row);
      setRange((known) => (known.from === first && known.to === last ? known : { from: first, to: last }));
    };
    update();
    // Scrolling does not bubble, but it can be captured, whichever element scrolls.
    document.addEventListener("scroll", update, { capture: true, passive: true });
    addEventListener("resize", update);
    return () => {
      document.removeEventListener("scroll", update, { capture: true });
      removeEventListener("resize", update);
    };
  }, [count, height]);
  const end = Math.min(count, to);
  const begin = Math.min(from, end);
  return (
    <div ref={place} style={{ paddingTop: begin * height, paddingBottom: (count - end) * height }}>
      {Array.from({ length: end - begin }, (_, at) => children(begin + at))}
    </div>
  );
}

const clamp = (index: number, count: number): number => Math.max(0, Math.min(count, index));
