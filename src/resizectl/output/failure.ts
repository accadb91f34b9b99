import { grpcCodeName } from '../../core/grpc/index.ts';
import { Code, Reason, type ServiceError, grpcErrorText, isServiceError } from '../../core/errors/index.ts';
import { remedyOf } from './remedies.ts';
import { messageText, printable } from './text.ts';
import { type ErrorInfo, decodeStatusDetails } from '../../api/wire/index.ts';
import { Exit } from '../command-table/index.ts';

/** The command line is invalid. */
export class UsageError extends Error {
  override readonly name = 'UsageError';
}

/** Another process changes this node. Nothing was changed; a later attempt may succeed. */
export class BusyError extends Error {
  override readonly name = 'BusyError';
}

/** An error in the form in which it is printed. */
export interface ErrorReport {
  readonly lines: readonly string[];
  readonly exit: Exit;
}

/** Returns the lines to print for an error, with its remedy, and the exit code. */
export function reportOf(error: unknown, endpoint: string): ErrorReport {
  if (error instanceof UsageError) return { lines: [error.message], exit: Exit.usage };
  if (error instanceof BusyError) return { lines: [error.message], exit: Exit.busy };
  if (!isServiceError(error))
    return { lines: [error instanceof Error ? error.message : String(error)], exit: Exit.failed };
  const info = errorInfoOf(error);
  if (info === undefined) return { lines: transportLines(error, endpoint), exit: Exit.failed };
  const remedy = remedyOf(info.reason);
  const message = `${info.reason}: ${messageText(error.details)}`;
  const lines = remedy === undefined ? [message] : [message, `what to do: ${remedy}`];
  return { lines, exit: exitOf(info.reason) };
}

/** The lines for a call that reached nothing, or something that is not the shim. */
function transportLines({ code, details }: ServiceError, endpoint: string): string[] {
  const name = grpcCodeName(code);
  const lines = [`the resize API at ${endpoint} did not answer: ${name}: ${printable(grpcErrorText(details))}`];
  if (code !== Code.UNAVAILABLE) return lines;
  return [
    ...lines,
    'what to do: check that cri-resize-shim is running (systemctl status cri-resize-shim), that it serves the API at this socket (--resize-listen, --intercept), and that you have permission to connect (by default only root has); use --endpoint for another socket',
  ];
}

const notFound: ReadonlySet<string> = new Set([Reason.UNKNOWN_POD, Reason.AMBIGUOUS_POD, Reason.UNKNOWN_RESIZE]);
const unknownResult: ReadonlySet<string> = new Set([
  Reason.INTERNAL,
  Reason.STOPPING,
  Reason.OVERLOADED,
  Reason.TOO_MANY_WATCHERS,
  Reason.WATCHER_TOO_SLOW,
]);

/** Returns the exit code for an error without a resize. */
function exitOf(reason: string): Exit {
  if (notFound.has(reason)) return Exit.usage;
  if (unknownResult.has(reason)) return Exit.failed;
  return reason === Reason.UNDO_FAILED ? Exit.undoFailed : Exit.infeasible;
}

/** Returns the ErrorInfo of the shim in an error; undefined if the error does not come from the shim. */
export function errorInfoOf(error: ServiceError): ErrorInfo | undefined {
  const [details] = error.metadata.get('grpc-status-details-bin');
  return Buffer.isBuffer(details) ? decodeStatusDetails(details) : undefined;
}
