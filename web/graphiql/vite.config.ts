import { defineConfig } from "vite";

export default defineConfig({
  // The page is at /graphql, like the API; its assets are below /graphiql/.
  base: "/graphiql/",
  build: {
    outDir: "node_modules/.dist", // moved to dist/ when complete: see package.json
    emptyOutDir: true,
    target: "es2022",
    assetsInlineLimit: 0, // an image of page and script was at times inline, at times a file: no two builds were equal
    reportCompressedSize: false,
    chunkSizeWarningLimit: 6000, // Monaco is one large chunk, however it is split
    rolldownOptions: {
      onwarn(warning, warn) {
        // "use client" is for servers that render React; there is none here.
        if (warning.code !== "MODULE_LEVEL_DIRECTIVE") warn(warning);
      },
    },
  },
  // Workers are files of our own origin, so that the Content-Security-Policy needs no `blob:`.
  worker: { format: "es" },
});
