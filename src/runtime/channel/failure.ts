import { Metadata, grpcCodeName } from '../../core/grpc/index.ts';
import type { ServiceError } from '../../core/errors/index.ts';
import type { Outcome } from './response/index.ts';

/** The error of a failed call. */
export interface CallFailure extends ServiceError {
  readonly hasNoAnswer: boolean;
  readonly isUnsent: boolean;
}

/** Returns the error of a failed call. */
export function failure(outcome: Outcome): CallFailure {
  const { code, details, metadata = new Metadata(), hasNoAnswer = false, isUnsent = false } = outcome;
  const error = new Error(`${code} ${grpcCodeName(code)}: ${details}`);
  return Object.assign(error, { code, details, metadata, hasNoAnswer, isUnsent });
}

/** Whether the client has ended a call itself, with a status that a server could have sent, too. */
export const hasNoAnswer = (error: Error): boolean => 'hasNoAnswer' in error && error.hasNoAnswer === true;

/** Whether a call has failed before the server has processed any of it. */
export const isUnsent = (error: Error): boolean => 'isUnsent' in error && error.isUnsent === true;
