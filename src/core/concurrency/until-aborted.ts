/** Waits for work that continues without its caller. Rejects with the signal's reason once it aborts. */
export async function untilAborted<Result>(work: Promise<Result>, signal: AbortSignal | undefined): Promise<Result> {
  if (signal === undefined) return work;
  const { promise: over, reject } = Promise.withResolvers<never>();
  const leave = (): void => reject(signal.reason);
  if (signal.aborted) leave();
  signal.addEventListener('abort', leave, { once: true });
  try {
    return await Promise.race([over, work]);
  } finally {
    signal.removeEventListener('abort', leave);
  }
}
