import { splitHidden } from "./hidden.ts";

/** A string in which every hidden character is shown by its name. */
export const Visible = ({ text }: { text: string }) => (
  <>
    {splitHidden(text).map((piece, at) =>
      piece.mark === undefined ? (
        piece.text
      ) : (
        <span key={at} className="j-mark" title="an invisible character">
          {piece.mark}
        </span>
      ),
    )}
  </>
);
