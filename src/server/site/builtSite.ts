import { fileURLToPath } from "node:url";
import type { SitePack } from "./sitePack.ts";
import { openPackFile } from "./sitePack.ts";

/** Opens the documentation that `npm run build:site` wrote. Null if it has not been built. */
export const openBuiltSite = (): SitePack | null =>
  openPackFile(fileURLToPath(new URL("../../../site/dist/site.pack", import.meta.url)));
