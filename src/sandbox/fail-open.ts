import type { FailOpenReason } from '../observe/index.ts';

/** Counts a request that is forwarded unchanged, and logs it once for each id and reason. */
export type FailOpen = (reason: FailOpenReason, id: string, error?: unknown) => void;
