import { type ServiceError, status } from '@grpc/grpc-js';
import { Reason, grpcErrorText } from '../../core/errors/index.ts';
import { cureOf } from './remedies.ts';
import { printable } from './text.ts';
import { type ErrorInfo, decodeStatusDetails } from '../../api/wire/index.ts';
import { Exit } from '../command-table.ts';

/** What was asked makes no sense. */
export class UsageError extends Error {
  override readonly name = 'UsageError';
}

/** A failure as a person is told of it. */
export interface Told {
  readonly lines: readonly string[];
  readonly exit: Exit;
}

export const isServiceError = (error: unknown): error is ServiceError =>
  error instanceof Error && 'code' in error && typeof error.code === 'number' && 'metadata' in error;

/** Says what went wrong, and what to do about it. */
export function tell(error: unknown, endpoint: string): Told {
  if (error instanceof UsageError) return { lines: [error.message], exit: Exit.usage };
  if (!isServiceError(error))
    return { lines: [error instanceof Error ? error.message : String(error)], exit: Exit.failed };
  const info = errorInfoOf(error);
  if (info === undefined) return { lines: transportLines(error, endpoint), exit: Exit.failed };
  const cure = cureOf(info.reason);
  const lines = [`${info.reason}: ${printable(error.details)}`, ...(cure === undefined ? [] : [`what to do: ${cure}`])];
  return { lines, exit: exitOf(info.reason) };
}

/** Nothing was reached, or something that is not the shim. */
function transportLines({ code, details }: ServiceError, endpoint: string): string[] {
  const name = status[code];
  const lines = [`the resize API at ${endpoint} did not answer: ${name}: ${printable(grpcErrorText(details))}`];
  if (code !== status.UNAVAILABLE) return lines;
  return [
    ...lines,
    'what to do: look whether cri-resize-shim runs (systemctl status cri-resize-shim), serves the API there (--resize-listen, --intercept), and whether you may connect (root may, by default); --endpoint names another socket',
  ];
}

const unknownThings: ReadonlySet<string> = new Set([Reason.UNKNOWN_POD, Reason.AMBIGUOUS_POD, Reason.UNKNOWN_RESIZE]);
const notSaid: ReadonlySet<string> = new Set([
  Reason.INTERNAL,
  Reason.STOPPING,
  Reason.TOO_MANY_WATCHERS,
  Reason.WATCHER_TOO_SLOW,
]);

/** Of a resize that has no state, since it never came to one. */
function exitOf(reason: string): Exit {
  if (unknownThings.has(reason)) return Exit.usage;
  if (notSaid.has(reason)) return Exit.failed;
  return reason === Reason.UNDO_FAILED ? Exit.undoFailed : Exit.infeasible;
}

/** What a call failed with, as the shim tells it; undefined where it does not. */
export function errorInfoOf(error: ServiceError): ErrorInfo | undefined {
  const [details] = error.metadata.get('grpc-status-details-bin');
  return Buffer.isBuffer(details) ? decodeStatusDetails(details) : undefined;
}
