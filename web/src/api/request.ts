// Queries and mutations over HTTP.
import type { Document } from "../generated/api.ts";
import { refuse, token } from "../session.ts";

export interface Refusal {
  readonly code: string;
  readonly message: string;
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

export async function ask<Result, Variables>(
  document: Document<Result, Variables>,
  variables: Variables,
  signal?: AbortSignal,
): Promise<Result> {
  const secret = token.value ?? "";
  const response = await reached(secret, document.text, variables, signal);
  const answer = await read(response);
  const error = answer.errors?.[0];
  if (response.status === 401) refuse(secret, "This token is not valid any more.");
  if (error || answer.data === undefined || answer.data === null) {
    const extensions = error?.extensions ?? {};
    const retryable = extensions["retryable"] === true || response.status >= 500;
    throw new ApiError(String(extensions["code"] ?? `HTTP_${response.status}`), error?.message ?? "No answer.", retryable);
  }
  return answer.data as Result;
}

const PAUSES = [300, 700, 1500, 3000, 5000, 5000, 5000];

// Mutations carry an idempotency key, so an answer that got lost is asked for again: the server does it once.
export async function insist<Result, Variables>(document: Document<Result, Variables>, variables: Variables): Promise<Result> {
  for (const pause of PAUSES) {
    try {
      return await ask(document, variables);
    } catch (error) {
      if (!(error instanceof ApiError) || !error.retryable) throw error;
      await new Promise((resolve) => setTimeout(resolve, pause));
    }
  }
  return ask(document, variables);
}

// crypto.randomUUID is missing on plain http from another machine.
export function newKey(): string {
  return Array.from(crypto.getRandomValues(new Uint8Array(16)), (byte) => byte.toString(16).padStart(2, "0")).join("");
}

export function wordsOf(error: unknown): string {
  return error instanceof Error ? error.message : String(error);
}

interface Answer {
  data?: unknown;
  errors?: { message: string; extensions?: Record<string, unknown> }[];
}

async function reached(secret: string, query: string, variables: unknown, signal?: AbortSignal): Promise<Response> {
  try {
    return await fetch("/graphql", {
      method: "POST",
      headers: { "content-type": "application/json", authorization: `Bearer ${secret}` },
      body: JSON.stringify({ query, variables }),
      signal: signal ?? null,
    });
  } catch (error) {
    if (error instanceof DOMException && error.name === "AbortError") throw error;
    throw new ApiError("NETWORK", "The server can’t be reached.", true);
  }
}

async function read(response: Response): Promise<Answer> {
  try {
    return (await response.json()) as Answer;
  } catch {
    throw new ApiError(`HTTP_${response.status}`, `The server answered ${response.status}.`, response.status >= 500);
  }
}
