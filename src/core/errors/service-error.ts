import type { Metadata } from '../grpc/index.ts';

/** The error of a failed gRPC call. */
export interface ServiceError extends Error {
  /** The status code. */
  readonly code: number;
  /** The status message. */
  readonly details: string;
  /** The trailers. */
  readonly metadata: Metadata;
}

/** Whether this is the error of a failed gRPC call. */
export function isServiceError(error: unknown): error is ServiceError {
  return (
    error instanceof Error &&
    'code' in error &&
    typeof error.code === 'number' &&
    'details' in error &&
    typeof error.details === 'string' &&
    'metadata' in error
  );
}
