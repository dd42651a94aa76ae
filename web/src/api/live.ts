// The one WebSocket of the page, its state for people, and subscriptions that come back where they stopped.
import { signal } from "@preact/signals";
import { type Client, createClient } from "graphql-ws/client";
import type { Document } from "../generated/api.ts";
import { refuse, token } from "../session.ts";
import { backoff } from "./backoff.ts";

export type Connection =
  | { readonly phase: "connecting" }
  | { readonly phase: "live"; readonly since: number }
  | { readonly phase: "waiting"; readonly until: number; readonly tries: number };

export const connection = signal<Connection>({ phase: "connecting" });

const FORBIDDEN = 4403;
const PING_EVERY = 10_000;
const PONG_WITHIN = 8_000;

let client: Client | null = null;
let tryNow: () => void = () => undefined;

// With a token the page is connected for as long as it is open; without one it is not.
export function connect(): () => void {
  let silence: ReturnType<typeof setTimeout> | undefined;
  let socket: WebSocket | undefined;
  const secret = token.value ?? "";
  const created = createClient({
    url: `${location.protocol === "https:" ? "wss" : "ws"}://${location.host}/graphql`,
    connectionParams: () => ({ Authorization: `Bearer ${secret}` }),
    lazy: false,
    keepAlive: PING_EVERY,
    retryAttempts: Number.POSITIVE_INFINITY,
    retryWait: wait,
    shouldRetry: (reason) => !(isClose(reason) && reason.code === FORBIDDEN),
    onNonLazyError: () => undefined, // told by `closed`
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
      // A machine that went to sleep or lost its network says nothing: whoever answers no ping is gone.
      ping: (received) => {
        if (!received) silence = setTimeout(() => socket?.close(4408, "no pong"), PONG_WITHIN);
      },
      pong: (received) => {
        if (received) clearTimeout(silence);
      },
      closed: (event) => {
        clearTimeout(silence);
        if (isClose(event) && event.code === FORBIDDEN) refuse(secret, "This token is not valid.");
      },
    },
  });
  client = created;
  const again = () => tryNow();
  addEventListener("online", again);
  return () => {
    removeEventListener("online", again);
    client = null;
    void created.dispose();
  };
}

export function reconnectNow(): void {
  tryNow();
}

export interface Watching<Result> {
  next(result: Result): void;
  // What the server said when it ended the subscription by itself; the last word unless it is RESUME.
  refused?(code: string, message: string): void;
}

// `variables` is asked again for every connection, so that it begins behind the last cursor.
export function watch<Result, Variables>(
  document: Document<Result, Variables>,
  variables: () => Variables,
  watching: Watching<Result>,
): () => void {
  let stop: () => void = () => undefined;
  let isOver = false;
  let timer: ReturnType<typeof setTimeout> | undefined;
  let fruitless = 0;

  const begin = () => {
    if (isOver || client === null) return;
    // graphql-ws turns this object into JSON anew with each connection: the getter is what makes it resume.
    const payload = {
      query: document.text,
      get variables() {
        return variables() as Record<string, unknown>;
      },
    };
    stop = client.subscribe<Result>(payload, {
      next: (result) => {
        if (isOver) return;
        const error = result.errors?.[0];
        if (error) return ended(String(error.extensions?.["code"] ?? "ERROR"), error.message);
        fruitless = 0;
        if (result.data) watching.next(result.data);
      },
      error: (reason) => {
        const error = Array.isArray(reason) ? (reason[0] as { message: string; extensions?: Record<string, unknown> }) : null;
        if (error) ended(String(error.extensions?.["code"] ?? "ERROR"), error.message);
      },
      complete: () => ended("RESUME", ""),
    });
  };

  const ended = (code: string, message: string) => {
    if (isOver) return;
    if (code !== "RESUME" && code !== "UNAVAILABLE") {
      isOver = true;
      watching.refused?.(code, message);
      return;
    }
    clearTimeout(timer);
    timer = setTimeout(begin, backoff(fruitless++));
  };

  begin();
  return () => {
    isOver = true;
    clearTimeout(timer);
    stop();
  };
}

function wait(tries: number): Promise<void> {
  const pause = backoff(tries);
  connection.value = { phase: "waiting", until: Date.now() + pause, tries: tries + 1 };
  return new Promise((resolve) => {
    const timer = setTimeout(resolve, pause);
    tryNow = () => {
      clearTimeout(timer);
      resolve();
    };
  });
}

function isClose(reason: unknown): reason is { code: number } {
  return typeof reason === "object" && reason !== null && "code" in reason;
}
