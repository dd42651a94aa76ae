// How long to wait before the next try: doubling, never in step with the other tabs.
export function backoff(tries: number, random: number = Math.random()): number {
  const most = Math.min(15_000, 400 * 2 ** Math.min(tries, 10));
  return Math.round(most * (0.5 + random / 2));
}
