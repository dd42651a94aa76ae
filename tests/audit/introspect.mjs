// The whole schema as the reference implementation asks for it, and whether it can make a schema out of the answer.
import { buildClientSchema, getIntrospectionQuery, validateSchema } from "graphql";

const [url, token] = process.argv.slice(2);
const query = getIntrospectionQuery({
  descriptions: true,
  specifiedByUrl: true,
  directiveIsRepeatable: true,
  schemaDescription: true,
  inputValueDeprecation: true,
  oneOf: true,
});
const response = await fetch(url, {
  method: "POST",
  headers: {
    "content-type": "application/json",
    accept: "application/graphql-response+json, application/json",
    authorization: `Bearer ${token}`,
  },
  body: JSON.stringify({ query, operationName: "IntrospectionQuery" }),
});
const answer = await response.json();
const schema = answer.data ? buildClientSchema(answer.data) : null;
const errors = answer.errors ?? validateSchema(schema).map((error) => error.message);
const mutations = schema ? Object.keys(schema.getMutationType().getFields()) : [];
console.log(JSON.stringify({ status: response.status, errors, mutations }));
