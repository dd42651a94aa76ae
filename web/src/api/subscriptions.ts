// The page’s one WebSocket, its connection status, and subscriptions that resume after their last cursor.
import { signal } from "@preact/signals";
import { type Client, createClient } from "graphql-ws/client";
import type { Document } from "../generated/api.ts";
import { rejectToken, SESSION, token } from "../session.ts";
import { backoff } from "./backoff.ts";

export type Connection =
  | { readonly phase: "connecting" }
  | { readonly phase: "live"; readonly since: number }
  | { readonly phase: "waiting"; readonly until: number; readonly tries: number };

export const connection = signal<Connection>({ phase: "connecting" });

const FORBIDDEN = 4403;
const PING_INTERVAL = 10_000;
const PONG_TIMEOUT = 8_000;

let client: Client | null = null;
let retryNow: () => void = () => undefined;

// Connects with the current token, and stays connected until the returned function is called.
export function connect(): () => void {
  let pongTimer: ReturnType<typeof setTimeout> | undefined;
  let socket: WebSocket | undefined;
  const secret = token.value ?? "";
  const created = createClient({
    url: `${location.protocol === "https:" ? "wss" : "ws"}://${location.host}/graphql`,
    connectionParams: () => (secret === SESSION ? {} : { Authorization: `Bearer ${secret}` }),
    lazy: false,
    keepAlive: PING_INTERVAL,
    retryAttempts: Number.POSITIVE_INFINITY,
    retryWait: waitToRetry,
    shouldRetry: (reason) => !(isClose(reason) && reason.code === FORBIDDEN),
    onNonLazyError: () => undefined, // `closed` below handles it
    on: {
      connecting: () => {
        connection.value = { phase: "connecting" };
      },
      opened: (opened) => {
        socket = opened as WebSocket;
      },
      connected: () => {
        connection.value = { phase: "live", since: Date.now() };
      },
      // After sleep or a lost network there is no close event: a missing pong closes the socket.
      ping: (received) => {
        if (!received) pongTimer = setTimeout(() => socket?.close(4408, "no pong"), PONG_TIMEOUT);
      },
      pong: (received) => {
        if (received) clearTimeout(pongTimer);
      },
      closed: (event) => {
        clearTimeout(pongTimer);
        if (isClose(event) && event.code === FORBIDDEN) rejectToken(secret, "This token is not valid.");
      },
    },
  });
  client = created;
  const onOnline = () => retryNow();
  addEventListener("online", onOnline);
  return () => {
    removeEventListener("online", onOnline);
    client = null;
    void created.dispose();
  };
}

export function reconnectNow(): void {
  retryNow();
}

export interface Handlers<Result> {
  next(result: Result): void;
  // The server ended the subscription with an error that a retry does not help.
  onError?(code: string, message: string): void;
}

// `variables` is called for every connection, so that a subscription resumes after its last cursor.
export function subscribe<Result, Variables>(
  document: Document<Result, Variables>,
  variables: () => Variables,
  handlers: Handlers<Result>,
): () => void {
  let stop: () => void = () => undefined;
  let isOver = false;
  let timer: ReturnType<typeof setTimeout> | undefined;
  let failures = 0;

  const start = () => {
    if (isOver || client === null) return;
    // graphql-ws serializes this object for each connection, so the getter supplies the newest cursor.
    const payload = {
      query: document.text,
      get variables() {
        return variables() as Record<string, unknown>;
      },
    };
    // One that ended with a result that has errors would go on beside its successor, and resume when the socket does.
    let isEnded = false;
    const end = (code: string, message: string) => {
      if (isEnded) return;
      isEnded = true;
      unsubscribe();
      ended(code, message);
    };
    const unsubscribe = client.subscribe<Result>(payload, {
      next: (result) => {
        if (isOver || isEnded) return;
        const error = result.errors?.[0];
        if (error) return end(String(error.extensions?.["code"] ?? "ERROR"), error.message);
        failures = 0;
        if (result.data) handlers.next(result.data);
      },
      error: (reason) => {
        const error = Array.isArray(reason) ? (reason[0] as { message: string; extensions?: Record<string, unknown> }) : null;
        if (error) end(String(error.extensions?.["code"] ?? "ERROR"), error.message);
      },
      complete: () => end("RESUME", ""),
    });
    stop = unsubscribe;
  };

  const ended = (code: string, message: string) => {
    if (isOver) return;
    if (code !== "RESUME" && code !== "UNAVAILABLE") {
      isOver = true;
      handlers.onError?.(code, message);
      return;
    }
    clearTimeout(timer);
    timer = setTimeout(start, backoff(failures++));
  };

  start();
  return () => {
    isOver = true;
    clearTimeout(timer);
    stop();
  };
}

function waitToRetry(tries: number): Promise<void> {
  const delay = backoff(tries);
  connection.value = { phase: "waiting", until: Date.now() + delay, tries: tries + 1 };
  return new Promise((resolve) => {
    const timer = setTimeout(resolve, delay);
    retryNow = () => {
      clearTimeout(timer);
      resolve();
    };
  });
}

function isClose(reason: unknown): reason is { code: number } {
  return typeof reason === "object" && reason !== null && "code" in reason;
}
