import type { ServiceError } from '@grpc/grpc-js';

/** Whether this is a gRPC error of grpc-js's client. */
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
