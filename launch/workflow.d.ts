/** How the steps of one call run on. */
export type RunOnOptions = {
  /**
   * For how many seconds a call begins further steps. Default: 5. The time limit of the endpoint must be this
   * time plus that of its longest step.
   */
  maxDuration?: number;
  /**
   * The middlewares of `serve` that have `afterExecution`. The client calls it only in a later call, so for
   * steps that run on, this function calls it.
   */
  middlewares?: readonly object[];
};

/**
 * Lets a route of `@upstash/workflow` execute several steps in one call, each stored before the next. It
 * works with the clients 0.2 and 1.x as they are, in every framework:
 *
 * ```ts
 * import { serve } from "@upstash/workflow/nextjs";
 * import { runOn } from "waypost/workflow";
 *
 * export const { POST } = serve(runOn(async (context) => { … }));
 * ```
 *
 * If the server does not let the call continue, or is another server, each step has its own call as before.
 */
export declare function runOn<Route extends (context: never, ...more: never[]) => Promise<unknown>>(
  route: Route,
  options?: RunOnOptions,
): Route;
