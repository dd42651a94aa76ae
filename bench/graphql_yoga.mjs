// The same answers from memory, by graphql-yoga: node graphql_yoga.mjs <folder with node_modules> <file with the rows>
import { createRequire } from 'node:module'
import { readFileSync } from 'node:fs'
import { createServer } from 'node:http'
import { pathToFileURL } from 'node:url'

const [folder, file] = process.argv.slice(2)
const require = createRequire(pathToFileURL(`${folder}/package.json`))
const { createSchema, createYoga } = require('graphql-yoga')
const rows = JSON.parse(readFileSync(file, 'utf8'))
const byId = new Map(rows.map((row) => [row.id, row]))

const schema = createSchema({
  typeDefs: /* GraphQL */ `
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
    type Query {
      instances(first: Int = 50, after: String): InstanceConnection!
      instance(id: ID!): Instance
    }
  `,
  resolvers: {
    Query: {
      instances: (_, { first, after }) => {
        // A cursor of Pilotlight names the last row of the page before.
        const last = after && `inst_${JSON.parse(Buffer.from(after, 'base64url').toString())[2]}`
        const start = last ? rows.indexOf(byId.get(last)) + 1 : 0
        return { nodes: rows.slice(start, start + first) }
      },
      instance: (_, { id }) => byId.get(id) ?? null,
    },
  },
})

const yoga = createYoga({ schema, logging: false, graphiql: false, landingPage: false })
const server = createServer(yoga)
server.listen(0, '127.0.0.1', () => console.log(`http://127.0.0.1:${server.address().port}/graphql`))
