// Random reads, events and mutations through the cache of a client library, with answers and events that arrive late.
// After each step: does the cache show what the server said last?
//
//     node cache_check.mjs apollo|urql newest|plain SEED STEPS
//
// `plain` is the library's cache as it comes. Prints one line of JSON.
import { ApolloClient, ApolloLink, HttpLink, InMemoryCache } from "@apollo/client";
import { GraphQLWsLink } from "@apollo/client/link/subscriptions";
import { Client, fetchExchange, subscriptionExchange } from "@urql/core";
import { cacheExchange } from "@urql/exchange-graphcache";
import { parse } from "graphql";
import { createClient } from "graphql-ws";
import { tap } from "rxjs";
import { pipe, subscribe, tap as tapped } from "wonka";
import WebSocket from "ws";
import { newestForApollo } from "./newest_apollo.js";
import { newestForUrql } from "./newest_urql.js";

const [library, policy, seed, steps] = process.argv.slice(2);
const URL = process.env.PILOTLIGHT_URL;
const AUTHORIZATION = { Authorization: `Bearer ${process.env.PILOTLIGHT_TOKEN}` };
const MOST_INSTANCES = 6;
const MOST_IN_FLIGHT = 12;

let state = Number(seed) || 1;
function random() {
  state = (state + 0x6d2b79f5) | 0; // mulberry32
  let mixed = Math.imul(state ^ (state >>> 15), 1 | state);
  mixed = (mixed + Math.imul(mixed ^ (mixed >>> 7), 61 | mixed)) ^ mixed;
  return ((mixed ^ (mixed >>> 14)) >>> 0) / 2 ** 32;
}
const below = (limit) => Math.floor(random() * limit);
const pick = (list) => list[below(list.length)];
const sleep = (ms) => new Promise((done) => setTimeout(done, ms));

// --- what the server said -------------------------------------------------------------------------------------------

// All that changes with `version` only, so that one version has one value. Objects are always selected as a whole.
const STATE = {
  Instance: [
    "name", "status", "statusReason", "statusSince", "region", "novitaId", "novitaStatus", "updatedAt", "runningAt",
    "readyAt", "isBilled", "actions", "productName", "failure { code message }", "labels { key value }",
    "pricePerHour { amountMicros currency }", "endpoints { port type address }",
  ],
  Operation: ["kind", "status", "phase", "createdAt", "startedAt", "finishedAt", "error { code message }"],
};
const FIELDS = Object.fromEntries(
  Object.entries(STATE).map(([type, fields]) => [type, fields.map((field) => field.split(" ")[0])]),
);
// Of these, one id has one value for ever.
const IDENTITY = {
  Product: ["name", "novitaId", "region"],
  Template: ["name", "novitaId"],
  Job: ["kind", "instanceId"],
  InstanceEvent: ["type", "occurredAt", "instanceId"],
  Instance: ["createdAt"],
  Operation: ["kind", "createdAt"],
};
const newest = new Map(); // by key: the highest version that was said
const said = new Map(); // by key, version and field: the value
const problems = [];
const counts = { steps: 0, reads: 0, mutations: 0, subscriptions: 0, events: 0, overtaken: 0, shown: 0, looks: 0 };

const keyOf = ({ __typename, id }) => `${__typename}:${id}`;
const isVersioned = (object) => object.__typename in STATE && "version" in object;
const canonical = (value) =>
  JSON.stringify(value, (_, inner) =>
    inner && typeof inner === "object" && !Array.isArray(inner)
      ? Object.fromEntries(Object.entries(inner).filter(([key]) => key !== "__typename").sort())
      : inner,
  );

function problem(text) {
  if (problems.length < 20) problems.push(`step ${counts.steps}: ${text}`);
}

function* objectsIn(value) {
  if (typeof value !== "object" || value === null) return;
  if (value.__typename && value.id) yield value;
  for (const inner of Object.values(value)) yield* objectsIn(inner);
}

/** An answer or event arrives. A read that was overtaken on its way has said nothing: it is not to be shown. */
function hear(kind, data) {
  const found = [...objectsIn(data)];
  for (const object of found) remember(IDENTITY, object, keyOf(object));
  for (const object of found.filter(isVersioned)) remember(FIELDS, object, `${keyOf(object)}@${object.version}`);
  const isOld = ({ version, ...object }) => version < (newest.get(keyOf(object)) ?? 0);
  const isMixed = (one) => found.some((other) => keyOf(one) === keyOf(other) && other.version > one.version);
  if (found.some((object) => isVersioned(object) && (isOld(object) || isMixed(object)))) {
    counts.overtaken += 1;
    if (kind === "query" && policy === "newest") return;
  }
  for (const object of found.filter(isVersioned)) {
    newest.set(keyOf(object), Math.max(object.version, newest.get(keyOf(object)) ?? 0));
  }
}

function remember(table, object, key) {
  for (const field of table[object.__typename] ?? []) {
    if (!(field in object)) continue;
    const value = canonical(object[field]);
    const known = said.get(`${key}.${field}`);
    if (known !== undefined && known !== value) problem(`the server said ${known} and ${value} of ${key}.${field}`);
    said.set(`${key}.${field}`, value);
  }
}

/** The cache shows something. */
function look(data, where) {
  for (const object of objectsIn(data)) {
    const key = keyOf(object);
    counts.looks += 1;
    compare(IDENTITY, object, key, where);
    if (!isVersioned(object)) continue;
    if (object.version !== newest.get(key)) {
      problem(`${where} shows version ${object.version} of ${key}, the server said ${newest.get(key)}`);
    } else if (policy === "newest") compare(FIELDS, object, `${key}@${object.version}`, where);
  }
}

function compare(table, object, key, where) {
  for (const field of table[object.__typename] ?? []) {
    if (field in object && canonical(object[field]) !== said.get(`${key}.${field}`)) {
      const { [field]: shown } = object;
      problem(`${where} shows ${canonical(shown)} as ${key}.${field}, the server said ${said.get(`${key}.${field}`)}`);
    }
  }
}

// --- a network that is slow now and then ----------------------------------------------------------------------------

const held = new Set();
let isSlow = false; // until the first answers are there
function delay() {
  if (!isSlow || random() < 0.6) return undefined;
  return new Promise((release) => held.add({ release, left: 1 + below(8) }));
}
function release() {
  for (const each of held) {
    if (isSlow && --each.left > 0) continue;
    held.delete(each);
    each.release();
  }
}

async function slowFetch(url, options) {
  const response = await fetch(url, options);
  const body = await response.text();
  await delay();
  return new Response(body, { status: response.status, headers: response.headers });
}

const sockets = createClient({ url: URL.replace(/^http/, "ws"), webSocketImpl: WebSocket, connectionParams: AUTHORIZATION });
const slowSockets = {
  ...sockets,
  subscribe(payload, sink) {
    let before = Promise.resolve();
    const later = (deliver) => (value) => {
      before = before.then(delay).then(() => deliver(value));
    };
    return sockets.subscribe(payload, {
      next: later((message) => sink.next(message)),
      error: later((error) => sink.error(error)),
      complete: later(() => sink.complete()),
    });
  },
};

// --- the two libraries ----------------------------------------------------------------------------------------------

function apollo() {
  const { cache, link } =
    policy === "newest" ? newestForApollo() : { cache: new InMemoryCache(), link: ApolloLink.empty() };
  const witness = new ApolloLink((operation, forward) =>
    forward(operation).pipe(tap(({ data }) => hear(operation.operationType, data))),
  );
  const transport = ApolloLink.split(
    ({ operationType }) => operationType === "subscription",
    new GraphQLWsLink(slowSockets),
    new HttpLink({ uri: URL, fetch: slowFetch, headers: AUTHORIZATION }),
  );
  const links = policy === "newest" ? [link, witness, transport] : [witness, transport];
  const client = new ApolloClient({ cache, link: ApolloLink.from(links), devtools: { enabled: false } });
  const quiet = { error: () => {} };
  return {
    read: (query, variables, isFresh) =>
      client.query({ query, variables, fetchPolicy: isFresh ? "network-only" : "cache-first", errorPolicy: "all" }),
    mutate: (mutation, variables) => client.mutate({ mutation, variables }).then(({ data }) => data),
    follow(query, variables, deliver) {
      const subscription = client.subscribe({ query, variables }).subscribe({ next: deliver, ...quiet });
      return () => subscription.unsubscribe();
    },
    watch(query, variables, show) {
      const watched = client.watchQuery({ query, variables, fetchPolicy: "cache-first" });
      const subscription = watched.subscribe({ next: ({ data, dataState, loading }) => dataState === "complete" && !loading && show(data), ...quiet });
      return () => subscription.unsubscribe();
    },
    cached: (query, variables) => cache.readQuery({ query, variables }),
    entities() {
      // Messages of mutations and subscriptions are in the store as they came, and are never read from it.
      const { ROOT_MUTATION, ROOT_SUBSCRIPTION, ...entities } = cache.extract();
      return Object.values(entities);
    },
  };
}

function urql() {
  const witness = ({ forward }) => (operations) =>
    pipe(forward(operations), tapped(({ operation, data }) => hear(operation.kind, data)));
  const client = new Client({
    url: URL,
    preferGetMethod: false,
    fetch: slowFetch,
    fetchOptions: { headers: AUTHORIZATION },
    exchanges: [
      policy === "newest" ? newestForUrql() : cacheExchange({}),
      witness,
      fetchExchange,
      subscriptionExchange({
        forwardSubscription: ({ query, variables }) => ({
          subscribe: (sink) => ({ unsubscribe: slowSockets.subscribe({ query, variables }, sink) }),
        }),
      }),
    ],
  });
  return {
    read: (query, variables, isFresh) =>
      client.query(query, variables, { requestPolicy: isFresh ? "network-only" : "cache-first" }).toPromise(),
    mutate: (mutation, variables) => client.mutation(mutation, variables).toPromise().then(({ data }) => data),
    follow: (query, variables, deliver) => pipe(client.subscription(query, variables), subscribe(deliver)).unsubscribe,
    watch: (query, variables, show) =>
      pipe(client.query(query, variables), subscribe(({ data, stale }) => data && !stale && show(data))).unsubscribe,
    cached: (query, variables) => client.readQuery(query, variables, { requestPolicy: "cache-only" })?.data,
    entities: () => [],
  };
}

// --- what is asked --------------------------------------------------------------------------------------------------

const documents = new Map();
function document(text) {
  if (!documents.has(text)) documents.set(text, parse(text));
  return documents.get(text);
}

function selection(type) {
  const some = STATE[type].filter(() => random() < 0.4);
  return `{ __typename id version createdAt ${some.join(" ")} }`;
}
const SELECTIONS = Array.from({ length: 6 }, () => selection("Instance"));
const OPERATIONS = Array.from({ length: 3 }, () => selection("Operation"));
const instanceFields = () => pick(SELECTIONS);
function nested() {
  const operation = pick(OPERATIONS).replace(/}$/, `instance ${instanceFields()} }`);
  return instanceFields().replace(/}$/, random() < 0.3 ? `openOperation ${operation} }` : "}");
}
const eventFields = () => `{
  __typename id type cursor occurredAt instanceId instanceSnapshot { instanceId version status }
  instance ${nested()} operation ${pick(OPERATIONS)}
}`;

const ids = [];
const operations = [];
const cursors = [];
const READS = [
  () => [`query ($first: Int!) { instances(first: $first) { nodes ${nested()} } }`, { first: 2 + below(8) }],
  () => [`query ($first: Int!) { instances(first: $first) { nodes ${nested()} } }`, { first: 2 + below(8) }],
  () => [`query ($id: ID!) { instance(id: $id) ${nested()} }`, { id: pick(ids) }],
  () => [`query ($id: ID!) { instance(id: $id) ${nested()} }`, { id: pick(ids) }],
  () => [`query ($id: ID!) { operation(id: $id) ${pick(OPERATIONS)} }`, { id: pick(operations) }],
  () => [`query ($after: String) { events(first: 10, after: $after) { nodes ${eventFields()} } }`, { after: pick(cursors) }],
  () => ["{ products { __typename id name novitaId region { code } } }", {}],
  () => ["{ templates(first: 20) { nodes { __typename id name novitaId } } }", {}],
  () => ["query ($first: Int!) { jobs(first: $first) { nodes { __typename id kind instanceId status } } }", { first: 2 + below(20) }],
];
const FOLLOWS = [
  () => [`subscription ($after: String) { instanceEvents(after: $after) ${eventFields()} }`, { after: pick(cursors) }],
  () => [`subscription ($id: ID!) { instanceUpdated(id: $id) { cursor instance ${nested()} } }`, { id: pick(ids) }],
  () => [`subscription ($id: ID!) { operationUpdated(id: $id) { operation ${pick(OPERATIONS)} } }`, { id: pick(operations) }],
];
const PAYLOAD = () => `{ instance ${nested()} operation ${pick(OPERATIONS)} errors { code } }`;
const verb = (name) => () => [`mutation ($id: ID!) { answer: ${name}(input: { id: $id }) ${PAYLOAD()} }`, { id: pick(ids) }];
const MUTATIONS = [
  create,
  verb("stopInstance"),
  verb("startInstance"),
  verb("restartInstance"),
  verb("deleteInstance"),
  () => [
    `mutation ($id: ID!, $n: String!) { answer: updateInstance(input: { id: $id, labels: [{ key: "n", value: $n }] }) ${PAYLOAD()} }`,
    { id: pick(ids), n: String(below(1000)) },
  ],
  () => [
    `mutation ($ids: [ID!]!) { answer: stopInstances(input: { ids: $ids }) { results ${PAYLOAD()} errors { code } } }`,
    { ids: [...new Set([pick(ids), pick(ids)])] },
  ],
];
function create() {
  const input = { name: `cached-${library}-${seed}-${process.pid}-${ids.length}`, productName: "RTX 4090 24GB", image: "nginx" };
  return [`mutation ($input: CreateInstanceInput!) { answer: createInstance(input: $input) ${PAYLOAD()} }`, { input }];
}

// --- the run --------------------------------------------------------------------------------------------------------

const client = library === "apollo" ? apollo() : urql();
const inFlight = new Set();
const follows = [];
const watches = [];
const asked = [];

function background(promise, what) {
  const tracked = promise.catch((error) => problem(String(error?.message ?? error))).finally(() => inFlight.delete(tracked));
  tracked.what = what;
  inFlight.add(tracked);
}

async function mutate([text, variables]) {
  counts.mutations += 1;
  const data = await client.mutate(document(text), variables);
  const answers = data?.answer?.results ?? [data?.answer];
  for (const answer of answers) {
    if (answer?.operation) operations.push(answer.operation.id);
    if (answer?.instance && !ids.includes(answer.instance.id)) ids.push(answer.instance.id);
  }
}

function deliver({ data }) {
  counts.events += 1;
  const event = data?.instanceEvents;
  if (event) cursors.push(event.cursor);
}

function verify() {
  for (const [query, variables] of asked) {
    const data = client.cached(query, variables);
    if (data) {
      counts.shown += 1;
      look(data, "a cached query");
    }
  }
  for (const entity of client.entities()) look(withoutReferences(entity), "the store");
}
const withoutReferences = (entity) =>
  Object.fromEntries(Object.entries(entity).filter(([, value]) => !JSON.stringify(value ?? null).includes("__ref")));

async function step() {
  const choice = random();
  if (choice < 0.55) {
    const [text, variables] = pick(READS)();
    counts.reads += 1;
    asked.push([document(text.replace(/^(query)?/, "query Probe")), variables]); // another request, the same data
    if (asked.length > 12) asked.shift();
    background(client.read(document(text), variables, random() < 0.7), text);
  } else if (choice < 0.7) {
    const [text, variables] = pick(FOLLOWS)();
    counts.subscriptions += 1;
    follows.push(client.follow(document(text), variables, deliver));
    if (follows.length > 6) follows.splice(below(follows.length), 1)[0]();
  } else if (choice < 0.8) {
    const [text, variables] = pick(READS.slice(0, 4))();
    watches.push(client.watch(document(text), variables, (data) => look(data, "a watched query")));
    if (watches.length > 3) watches.splice(below(watches.length), 1)[0]();
  } else {
    const [text, variables] = pick(MUTATIONS)();
    if (!text.includes("createInstance") || ids.length < MOST_INSTANCES) background(mutate([text, variables]));
  }
  await sleep(below(25));
}

const head = await client.read(document("{ serverInfo { eventLog { head } } }"), {}, true);
cursors.push(null, head.data.serverInfo.eventLog.head);
for (let number = 0; number < 3; number += 1) {
  await mutate(create());
}
isSlow = true;
while (counts.steps < Number(steps) && (policy === "newest" || problems.length === 0)) {
  counts.steps += 1;
  await step();
  do {
    release();
    verify();
  } while (inFlight.size > MOST_IN_FLIGHT && (await sleep(10), true)); // as quickly as the server answers
}
isSlow = false;
release();
for (const end of [...follows, ...watches]) end();
await Promise.race([Promise.all(inFlight), sleep(40_000)]);
verify();
console.log(JSON.stringify({ library, policy, seed: Number(seed), ...counts, unanswered: [...inFlight].map(({ what }) => what), problems }));
process.exit(0);
