// Exponential backoff with jitter, so that tabs do not retry at the same moment.
export function backoff(attempt: number, random: number = Math.random()): number {
  const limit = Math.min(15_000, 400 * 2 ** Math.min(attempt, 10));
  return Math.round(limit * (0.5 + random / 2));
}
