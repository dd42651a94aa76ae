/** What is in the tabs when somebody comes for the first time; afterwards GraphiQL remembers theirs. */

const documents = import.meta.glob<string>("./tabs/*.graphql", { query: "?raw", import: "default", eager: true });
const variables = import.meta.glob<string>("./tabs/*.json", { query: "?raw", import: "default", eager: true });

// GraphiQL takes a tab's title from its operation's name.
const ORDER = ["create", "watch", "start", "quote", "fleet", "jobs"];

export const TABS = ORDER.map((name) => ({
  query: documents[`./tabs/${name}.graphql`] ?? "",
  variables: variables[`./tabs/${name}.json`] ?? "",
}));
