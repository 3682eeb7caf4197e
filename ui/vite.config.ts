import { svelte } from "@sveltejs/vite-plugin-svelte";
import { defineConfig } from "vitest/config";
import { xtermUnderCsp } from "./xterm-csp.ts";

export default defineConfig({
  plugins: [svelte(), xtermUnderCsp()],
  clearScreen: false,
  server: { host: "127.0.0.1", port: 1420, strictPort: true },
  // An asset as a data URL would need a wider content security policy.
  build: { target: "safari15", assetsInlineLimit: 0, modulePreload: { polyfill: false } },
  // Under vitest Svelte's browser build is wanted, not the server one.
  resolve: process.env["VITEST"] ? { conditions: ["browser"], mainFields: ["browser", "module", "main"] } : {},
  optimizeDeps: { exclude: ["@xterm/xterm"] },
  test: {
    environment: "jsdom",
    include: ["src/**/*.test.ts"],
    setupFiles: ["src/test-setup.ts"],
    server: { deps: { inline: ["@xterm/xterm"] } },
    testTimeout: 20_000,
  },
});
