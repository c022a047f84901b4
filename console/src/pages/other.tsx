import type { ErrorComponentProps } from "@tanstack/react-router";
import { PageLink } from "../parts/link.tsx";
import { Button } from "../parts/basics.tsx";
import { Panel } from "../parts/panel.tsx";
import { Empty, SkeletonRows } from "../parts/trouble.tsx";
import { toMessage } from "../parts/words.ts";
import { commandKey } from "../shell/shortcuts.tsx";
import { Page } from "../shell/shell.tsx";

/** An address without a page. */
export const Missing = () => (
  <Page title="Not found" isLive={false}>
    <Panel>
      <Empty
        title="There is no page at this address"
        actions={
          <PageLink className="btn" to="/">
            Overview
          </PageLink>
        }
      >
        <p>To find a message or a run, press {commandKey} K and paste its id.</p>
      </Empty>
    </Panel>
  </Page>
);

/** A page that failed because of an error in the console. */
export const PageFailed = ({ error }: ErrorComponentProps) => (
  <Page title="This page failed" isLive={false}>
    <Panel>
      <Empty title="This page failed" actions={<Button onClick={() => location.reload()}>Reload</Button>}>
        <p className="mono">{toMessage(error)}</p>
      </Empty>
    </Panel>
  </Page>
);

export const PageLoading = () => (
  <div aria-busy="true">
    <SkeletonRows />
  </div>
);
