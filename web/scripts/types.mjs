// Types for every document in src/documents, made from the server's schema. A document that does not fit it fails here,
// so a page that builds asks only for what there is.
import { createHash } from "node:crypto";
import { mkdirSync, readFileSync, readdirSync, writeFileSync } from "node:fs";
import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";
import {
  buildSchema, getNamedType, isEnumType, isInputObjectType, isListType, isNonNullType, isScalarType, parse, print,
  typeFromAST, validate, visit,
} from "graphql";

const here = dirname(fileURLToPath(import.meta.url));
const SCHEMA = join(here, "../../schema/schema.graphql");
const DOCUMENTS = join(here, "../src/documents");
const TARGET = join(here, "../src/generated/api.ts");
const SCALARS = { ID: "string", String: "string", Int: "number", Float: "number", Boolean: "boolean", BigInt: "number", DateTime: "string", Duration: "number" };

const schema = buildSchema(readFileSync(SCHEMA, "utf8"));
const files = readdirSync(DOCUMENTS).filter((name) => name.endsWith(".graphql")).sort();
const text = files.map((name) => readFileSync(join(DOCUMENTS, name), "utf8")).join("\n");
const document = parse(text);
const problems = validate(schema, document);
if (problems.length) {
  for (const problem of problems) console.error(`${problem.message}\n${(problem.nodes ?? []).map(print).join("\n")}\n`);
  process.exit(1);
}

const fragments = new Map(
  document.definitions.filter((each) => each.kind === "FragmentDefinition").map((each) => [each.name.value, each]),
);
const needed = new Set();
const texts = {};
const body = document.definitions.map((each) => (each.kind === "FragmentDefinition" ? fragment(each) : operation(each)));
const out = [
  "// Made by scripts/types.mjs from the schema and src/documents; not committed.",
  "export interface Document<Result, Variables> {\n  readonly text: string;\n  readonly of?: (variables: Variables) => Result;\n}",
  ...[...needed].sort().map(declared),
  ...body,
].join("\n\n");
mkdirSync(dirname(TARGET), { recursive: true });
writeFileSync(TARGET, `${out}\n`);
// For servers that answer nothing but known documents.
writeFileSync(join(dirname(TARGET), "documents.json"), `${JSON.stringify(texts, null, 2)}\n`);

function fragment(definition) {
  const type = typeFromAST(schema, definition.typeCondition);
  return `export type ${definition.name.value} = ${selected(definition.selectionSet, type)};`;
}

function operation(definition) {
  const name = definition.name.value;
  const root = schema.getRootType(definition.operation);
  const variables = (definition.variableDefinitions ?? []).map((each) => {
    const type = typeFromAST(schema, each.type);
    return `${each.variable.name.value}${isNonNullType(type) ? "" : "?"}: ${input(type)}`;
  });
  const sent = squeezed([print(definition), ...[...used(definition)].map((each) => print(fragments.get(each)))].join("\n"));
  texts[createHash("sha256").update(sent).digest("hex")] = sent;
  return [
    `export type ${name}Result = ${selected(definition.selectionSet, root)};`,
    `export type ${name}Variables = ${variables.length ? `{ ${variables.join("; ")} }` : "Record<string, never>"};`,
    `export const ${name}: Document<${name}Result, ${name}Variables> = { text: ${JSON.stringify(sent)} };`,
  ].join("\n");
}

function used(definition, found = new Set()) {
  visit(definition, {
    FragmentSpread(node) {
      if (found.has(node.name.value)) return;
      found.add(node.name.value);
      used(fragments.get(node.name.value), found);
    },
  });
  return found;
}

// What is more specific than the type itself is there or not: the reader has to look.
function selected(set, type) {
  const parts = [];
  const fields = [];
  for (const selection of set.selections) {
    if (selection.kind === "Field") {
      const name = selection.alias?.value ?? selection.name.value;
      if (selection.name.value === "__typename") fields.push(`${name}: string`);
      else fields.push(`${name}: ${output(type.getFields()[selection.name.value].type, selection)}`);
    } else if (selection.kind === "FragmentSpread") {
      parts.push(selection.name.value);
    } else {
      const inner = typeFromAST(schema, selection.typeCondition);
      parts.push(`Partial<${selected(selection.selectionSet, inner)}>`);
    }
  }
  if (fields.length) parts.unshift(`{ ${fields.join("; ")} }`);
  return parts.join(" & ");
}

function output(type, selection) {
  if (isNonNullType(type)) return bare(type.ofType, (inner) => output(inner, selection), selection);
  return `${bare(type, (inner) => output(inner, selection), selection)} | null`;
}

function bare(type, inner, selection) {
  if (isListType(type)) return `readonly (${inner(type.ofType)})[]`;
  if (isScalarType(type)) return SCALARS[type.name] ?? "unknown";
  if (isEnumType(type)) return need(type);
  return selected(selection.selectionSet, type);
}

function input(type) {
  if (isNonNullType(type)) return given(type.ofType);
  return `${given(type)} | null`;
}

function given(type) {
  if (isListType(type)) return `readonly (${input(type.ofType)})[]`;
  if (isScalarType(type)) return SCALARS[type.name] ?? "unknown";
  return need(type);
}

function need(type) {
  if (!needed.has(type.name)) {
    needed.add(type.name);
    if (isInputObjectType(type)) for (const field of Object.values(type.getFields())) inputOf(field.type);
  }
  return type.name;
}

function inputOf(type) {
  const named = getNamedType(type);
  if (!isScalarType(named)) need(named);
}

function declared(name) {
  const type = schema.getType(name);
  if (isEnumType(type)) return `export type ${name} = ${type.getValues().map((each) => `"${each.name}"`).join(" | ")};`;
  const fields = Object.values(type.getFields()).map((field) => {
    const optional = !isNonNullType(field.type) || field.defaultValue !== undefined;
    return `  ${field.name}${optional ? "?" : ""}: ${input(field.type)};`;
  });
  return `export interface ${name} {\n${fields.join("\n")}\n}`;
}

function squeezed(sent) {
  return sent.replace(/\s+/g, " ").trim();
}
