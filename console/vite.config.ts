import { fileURLToPath } from "node:url";
import { defineConfig } from "vite";

// Relative addresses, so that the console works below any prefix of a reverse proxy.
export default defineConfig({
  root: fileURLToPath(new URL(".", import.meta.url)),
  base: "./",
  logLevel: "error",
  build: {
    target: "es2024",
    // A script in a data: URL would break the Content-Security-Policy.
    assetsInlineLimit: 0,
    modulePreload: { polyfill: false },
    emptyOutDir: true,
    reportCompressedSize: false,
  },
});
