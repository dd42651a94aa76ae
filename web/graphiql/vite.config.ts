import { defineConfig } from "vite";

export default defineConfig({
  // The page itself is at /graphql, beside the API; what it loads is below /graphiql/.
  base: "/graphiql/",
  build: {
    outDir: "node_modules/.dist", // moved to dist/ when it is whole: see package.json
    emptyOutDir: true,
    target: "es2022",
    reportCompressedSize: false,
    chunkSizeWarningLimit: 6000, // Monaco is one large piece, however it is cut
    rolldownOptions: {
      onwarn(warning, warn) {
        // "use client" speaks to servers that render React; there is none here.
        if (warning.code !== "MODULE_LEVEL_DIRECTIVE") warn(warning);
      },
    },
  },
  // Workers are files of our own origin, so that the page's policy needs no `blob:`.
  worker: { format: "es" },
});
