// Every audit of graphql-http against a running server, with one line of JSON for each.
import { serverAudits } from "graphql-http";

const [url, token] = process.argv.slice(2);
const authorized = (target, options = {}) =>
  fetch(target, { ...options, headers: { ...options.headers, authorization: `Bearer ${token}` } });

for (const audit of serverAudits({ url, fetchFn: authorized })) {
  const { id, name, status, reason } = await audit.fn();
  console.log(JSON.stringify({ id, name, status, reason }));
}
