import { errnoOf } from '../../core/errors/index.ts';

/** The API server has answered, and not with what was asked for. */
export class ApiRefusal extends Error {
  override readonly name = 'ApiRefusal';
  constructor(
    readonly status: number,
    /** The server's own words, from a Status object; empty when it gave none. */
    readonly says: string,
    /** How long it asks to be left alone, in milliseconds. */
    readonly retryAfterMs = 0,
  ) {
    super(`HTTP ${status}${says === '' ? '' : `: ${says}`}`);
  }
}

/** The API server has not answered, or not in its own language, or we could not ask. The message is safe to be logged. */
export class ApiUnreached extends Error {
  override readonly name = 'ApiUnreached';
}

/** What was asked for is too old: 410 Gone, as an answer or in a watch. */
export const isGone = (error: unknown): boolean => error instanceof ApiRefusal && error.status === 410;

/** An error in words that may be logged and shown: of what is not ours only the name or errno, never a message that may quote. */
export function wordsOf(error: unknown): string {
  if (error instanceof ApiRefusal || error instanceof ApiUnreached) return error.message;
  return errnoOf(error) ?? (error instanceof Error ? error.name : typeof error);
}

/** Nobody answers at that address: a server that goes cuts its connections first, and is not there at the next try. */
const NO_CONNECTION: ReadonlySet<string> = new Set([
  ...['ECONNREFUSED', 'ECONNRESET', 'ECONNABORTED', 'EPIPE', 'ETIMEDOUT'],
  ...['EHOSTUNREACH', 'EHOSTDOWN', 'ENETUNREACH', 'ENETDOWN', 'ENOTFOUND', 'EAI_AGAIN'],
]);

/** What is the same as long as the same thing is wrong: words may change with each try. */
export function kindOf(error: unknown): string {
  if (error instanceof ApiRefusal) return `HTTP ${error.status}`;
  const words = wordsOf(error);
  return NO_CONNECTION.has(words) ? 'no connection' : words;
}
