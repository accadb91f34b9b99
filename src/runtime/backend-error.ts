import { type ServiceError, status } from '@grpc/grpc-js';

/**
 * Corrects the status of a failed call in place: grpc-js hands over a `grpc-status` that is no number as the code NaN, without details.
 * gRPC's clients take it for UNKNOWN (statuscodes.md of grpc).
 */
export function correctStatus(error: ServiceError): ServiceError {
  const { code, details }: { code: unknown; details: unknown } = error;
  if (!Number.isInteger(code)) error.code = status.UNKNOWN;
  if (typeof details !== 'string') error.details = 'the backend ended the call with an invalid status';
  return error;
}
