// The same rows out of PostgreSQL, by Mercurius with compiled queries (jit: 1):
// node reads_mercurius.mjs <folder with node_modules> <database> <project> <token>
import { createRequire } from 'node:module'
import { pathToFileURL } from 'node:url'

const [folder, database, project, token] = process.argv.slice(2)
const require = createRequire(pathToFileURL(`${folder}/package.json`))
const Fastify = require('fastify')
const mercurius = require('mercurius')
const { GraphQLScalarType } = require('graphql')
const pg = require('pg')

pg.types.setTypeParser(pg.types.builtins.INT8, Number)
const pool = new pg.Pool({ connectionString: database, max: 10 })
// Named, so that they are prepared once.
const ask = async (name, text, values) => (await pool.query({ name, text, values: [project, ...values] })).rows

const columns = `SELECT id, name, status, status_since, version, product_name, gpu_count, region, image, created_at,
  updated_at, price_per_hour_e5 FROM instance WHERE project_id = $1`
const newest = (first) => `AND status <> 'DELETED' ORDER BY created_at DESC, id DESC LIMIT ${Number(first)}`
const BILLED = new Set(['READY', 'FAILED'])

const schema = /* GraphQL */ `
  scalar DateTime
  scalar BigInt
  enum InstanceStatus { CREATING STARTING RUNNING HEALTH_CHECKING READY STOPPING EXITED RESTARTING MIGRATING DELETING DELETED FAILED }
  type Money { amountMicros: BigInt! currency: String! }
  type Instance {
    id: ID!
    name: String!
    status: InstanceStatus!
    statusSince: DateTime!
    version: Int!
    productName: String!
    gpuCount: Int!
    region: String
    image: String!
    createdAt: DateTime!
    updatedAt: DateTime!
    pricePerHour: Money
  }
  type InstanceConnection { nodes: [Instance!]! }
  input InstanceFilter { statuses: [InstanceStatus!] createdAfter: DateTime regions: [String!] }
  type Query {
    instances(first: Int = 50, after: String, filter: InstanceFilter): InstanceConnection!
    instance(id: ID!): Instance
  }
`

const shown = (row) => ({
  id: `inst_${row.id.replaceAll('-', '')}`,
  name: row.name,
  status: row.status,
  statusSince: row.status_since,
  version: row.version,
  productName: row.product_name,
  gpuCount: row.gpu_count,
  region: row.region,
  image: row.image,
  createdAt: row.created_at,
  updatedAt: row.updated_at,
  pricePerHour: BILLED.has(row.status) ? { amountMicros: row.price_per_hour_e5 * 10, currency: 'USD' } : null,
})

const page = async ({ first, after, filter }) => {
  if (after != null) {
    const [, moment, id] = JSON.parse(Buffer.from(after, 'base64url').toString())
    return ask('after', `${columns} AND (created_at, id) < ($2, $3) ${newest(first)}`, [moment, id])
  }
  if (filter?.regions) return ask('regions', `${columns} AND region = ANY($2) ${newest(first)}`, [filter.regions])
  if (filter) {
    const text = `${columns} AND status = ANY($2) AND created_at > $3 ${newest(first)}`
    return ask('filter', text, [filter.statuses, filter.createdAfter])
  }
  return ask('page', `${columns} ${newest(first)}`, [])
}

const resolvers = {
  DateTime: new GraphQLScalarType({
    name: 'DateTime',
    serialize: (date) => date.toISOString().replace('.000Z', '+00:00'),
    parseValue: (text) => text,
  }),
  BigInt: new GraphQLScalarType({ name: 'BigInt', serialize: (number) => number }),
  Query: {
    instances: async (_, args) => ({ nodes: (await page(args)).map(shown) }),
    instance: async (_, { id }) => {
      const [row] = await ask('one', `${columns} AND id = $2`, [id.slice(5)])
      return row ? shown(row) : null
    },
  },
}

const app = Fastify()
app.addHook('onRequest', async (request, reply) => {
  if (request.headers.authorization !== `Bearer ${token}`) return reply.code(401).send()
})
app.register(mercurius, { schema, resolvers, jit: 1 })
console.log(`${await app.listen({ port: 0, host: '127.0.0.1' })}/graphql`)
