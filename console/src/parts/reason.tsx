import type { ReactNode } from "react";
import { Time } from "./basics.tsx";
import type { Condition } from "./conditions.ts";
import { describeActor, shortenCondition } from "./conditions.ts";
import { Visible } from "./visible.tsx";

type ReasonProps = {
  /** The condition that the server reports. */
  condition: Condition | undefined;
  /** The name of the thing in the row, which the text then leaves out. */
  name: string;
  /** The text if the server reports nothing. */
  otherwise?: ReactNode;
  /** A further fact about the thing, such as that its limits are pinned. */
  more?: string;
  /** The button that helps. */
  children?: ReactNode;
};

/** In a row of a list: what is wrong with it, since when, who caused it, and the button that helps. */
export const Reason = ({ condition, name, otherwise, more, children }: ReasonProps) => (
  <div className="why reason">
    <div>
      <div className="l1">
        {condition ? (
          <span className="t" title={condition.text}>
            <Visible text={shortenCondition(condition.text, name)} />
          </span>
        ) : (
          <span className="t muted">{otherwise}</span>
        )}
      </div>
      {condition?.since !== undefined && (
        <div className="l2">
          <span className="t">
            since <Time at={condition.since} />
            {condition.by && `, by ${describeActor(condition.by)}`}
            {more !== undefined && `; ${more.toLowerCase()}`}
          </span>
        </div>
      )}
    </div>
    {children}
  </div>
);
