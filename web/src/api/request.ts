// Queries and mutations over HTTP.
import type { Document } from "../generated/api.ts";
import { rejectToken, SESSION, token } from "../session.ts";

export interface MutationError {
  readonly code: string;
  readonly message: string;
  readonly help?: string | null;
  readonly path: readonly string[];
}

export class ApiError extends Error {
  readonly code: string;
  readonly retryable: boolean;

  constructor(code: string, message: string, retryable: boolean) {
    super(message);
    this.code = code;
    this.retryable = retryable;
  }
}

export async function request<Result, Variables>(
  document: Document<Result, Variables>,
  variables: Variables,
  signal?: AbortSignal,
): Promise<Result> {
  const secret = token.value ?? "";
  const response = await post(secret, document.text, variables, signal);
  const body = await read(response);
  const error = body.errors?.[0];
  if (response.status === 401) rejectToken(secret, "This token is not valid any more.");
  if (error || body.data === undefined || body.data === null) {
    const extensions = error?.extensions ?? {};
    const retryable = extensions["retryable"] === true || response.status >= 500;
    throw new ApiError(String(extensions["code"] ?? `HTTP_${response.status}`), error?.message ?? "The response has no data.", retryable);
  }
  return body.data as Result;
}

const RETRY_DELAYS = [300, 700, 1500, 3000, 5000, 5000, 5000];

// For mutations: a retry repeats the idempotency key, so the server runs the mutation once even if a response was lost.
export async function requestWithRetry<Result, Variables>(document: Document<Result, Variables>, variables: Variables): Promise<Result> {
  for (const delay of RETRY_DELAYS) {
    try {
      return await request(document, variables);
    } catch (error) {
      if (!(error instanceof ApiError) || !error.retryable) throw error;
      await new Promise((resolve) => setTimeout(resolve, delay));
    }
  }
  return request(document, variables);
}

// Browsers offer crypto.randomUUID only over https and on localhost.
export function newIdempotencyKey(): string {
  return Array.from(crypto.getRandomValues(new Uint8Array(16)), (byte) => byte.toString(16).padStart(2, "0")).join("");
}

export function messageOf(error: unknown): string {
  return error instanceof Error ? error.message : String(error);
}

interface GraphQLResponse {
  data?: unknown;
  errors?: { message: string; extensions?: Record<string, unknown> }[];
}

async function post(secret: string, query: string, variables: unknown, signal?: AbortSignal): Promise<Response> {
  try {
    return await fetch("/graphql", {
      method: "POST",
      headers: { "content-type": "application/json", ...(secret === SESSION ? {} : { authorization: `Bearer ${secret}` }) },
      body: JSON.stringify({ query, variables }),
      signal: signal ?? null,
    });
  } catch (error) {
    if (error instanceof DOMException && error.name === "AbortError") throw error;
    throw new ApiError("NETWORK", "The server cannot be reached.", true);
  }
}

async function read(response: Response): Promise<GraphQLResponse> {
  try {
    return (await response.json()) as GraphQLResponse;
  } catch {
    throw new ApiError(`HTTP_${response.status}`, `The server responded with HTTP ${response.status}.`, response.status >= 500);
  }
}
