import { errnoOf } from '../../core/index.ts';

/** The API server answered with an error status. */
export class ApiRefusal extends Error {
  override readonly name = 'ApiRefusal';
  constructor(
    readonly status: number,
    /** Message of the Status object; empty if there is none. */
    readonly says: string,
    /** Retry-After in milliseconds. */
    readonly retryAfterMs = 0,
  ) {
    super(`HTTP ${status}${says === '' ? '' : `: ${says}`}`);
  }
}

/** No response, an invalid response, or no request was possible. The message is safe to log. */
export class ApiUnreached extends Error {
  override readonly name = 'ApiUnreached';
}

/** 403 Forbidden: a right is missing, or an admission policy denies the request. */
export const isForbidden = (error: unknown): error is ApiRefusal => error instanceof ApiRefusal && error.status === 403;

/** 410 Gone, as a response or in a watch: the resource version is too old. */
export const isGone = (error: unknown): boolean => error instanceof ApiRefusal && error.status === 410;

/** The server lacks this resource version, as after a backup restore (storage.NewTooLargeResourceVersionError). */
export const isTooNew = (error: unknown): boolean =>
  error instanceof ApiRefusal && error.status === 504 && /too large resource version/i.test(error.says);

/** Returns text that is safe to log. Other modules' errors: only errno or name, as messages may quote secrets. */
export function wordsOf(error: unknown): string {
  if (error instanceof ApiRefusal || error instanceof ApiUnreached) return error.message;
  return errnoOf(error) ?? (error instanceof Error ? error.name : typeof error);
}

/** Errnos of a missing server. A server that stops first resets its connections, then refuses new ones. */
const NO_CONNECTION: ReadonlySet<string> = new Set([
  'ECONNREFUSED',
  'ECONNRESET',
  'ECONNABORTED',
  'EPIPE',
  'ETIMEDOUT',
  'EHOSTUNREACH',
  'EHOSTDOWN',
  'ENETUNREACH',
  'ENETDOWN',
  'ENOTFOUND',
  'EAI_AGAIN',
]);

/** Returns a stable name for the kind of error. The text of {@link wordsOf} may change with each try. */
export function kindOf(error: unknown): string {
  if (error instanceof ApiRefusal) return `HTTP ${error.status}`;
  const words = wordsOf(error);
  return NO_CONNECTION.has(words) ? 'no connection' : words;
}
