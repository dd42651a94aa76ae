/** The tabs of a first visit; afterwards GraphiQL restores the user's own. */

const documents = import.meta.glob<string>("./tabs/*.graphql", { query: "?raw", import: "default", eager: true });
const variables = import.meta.glob<string>("./tabs/*.json", { query: "?raw", import: "default", eager: true });

// GraphiQL takes a tab's title from the operation's name.
const ORDER = ["create", "watch", "start", "quote", "fleet", "spend", "lifetimes", "market", "logs", "jobs"];

export const TABS = ORDER.map((name) => ({
  query: documents[`./tabs/${name}.graphql`] ?? "",
  variables: variables[`./tabs/${name}.json`] ?? "",
}));
