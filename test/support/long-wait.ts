/** Options of `expect.poll` and `vi.waitFor`, whose own limit of 1 s a busy machine exceeds. */
export const LONG_WAIT = { timeout: 60_000 } as const;
