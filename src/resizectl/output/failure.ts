import {
  Code,
  Exit,
  grpcCodeName,
  grpcErrorText,
  isServiceError,
  Reason,
  type ServiceError,
} from '../../core/index.ts';
import { decodeStatusDetails, type ErrorInfo } from '../../server/unary/status.ts';
import { messageText, printable } from './text.ts';

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

/** Returns the lines for a call that reached nothing, or a server other than the shim. */
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

/** The remedy for each reason: the last column of docs/errors.md, which a test compares. */
export const remedies: Readonly<Record<Reason, string>> = {
  INVALID_VALUE:
    'correct the request; the message names the field and the value; field is its path in a request of the resize API',
  INVALID_ANNOTATION: 'correct the annotation, or the size in the request',
  UNKNOWN_POD: 'check crictl pods',
  POD_ENDED: 'none: resize the pod that replaces it',
  SANDBOX_ENDED: 'repeat the request when the pod runs again, or use --defer',
  NO_RUNNING_CONTAINER:
    'repeat the request when the container runs, or use --defer: the resize is retried when kubelet starts a container',
  UNKNOWN_CONTAINER: 'check crictl ps -a --pod',
  UNKNOWN_VOLUME: "check the pod's volumes; only medium: Memory counts",
  INIT_CONTAINER_ENDED: 'remove it from the request',
  INIT_CONTAINER_NOT_RESIZABLE: 'remove it from the request',
  EPHEMERAL_CONTAINER_NOT_RESIZABLE: 'remove it from the request',
  MEMORY_NOT_RECLAIMABLE: 'free memory in the container, or ask for more than is in use',
  RECLAIM_TIMEOUT:
    'try again; give the call a longer deadline; look for files that cannot be written back, or processes that read more than the new limit holds',
  VOLUME_IN_USE: 'remove files, or ask for more than is stored',
  VOLUME_NOT_ELIGIBLE: 'none: the shim does not change such a mount',
  VOLUME_EXCEEDS_SIZE_LIMIT: "ask for at most the volume's sizeLimit in the pod's spec",
  VOLUME_RESIZED_BY_KUBELET:
    'change sizeLimit in the spec through the API server: kubectl patch pod POD --subresource resize --patch ...',
  CGROUP_UNAVAILABLE: 'check whether the pod has ended; the message names the file',
  CGROUP_WRITE_FAILED: 'see the file, the value and the errno in the message',
  UNIT_UNAVAILABLE:
    "check systemctl status UNIT; kubelet creates a pod's slice, or systemd does when the pod's first container starts; use --cgroup-driver cgroupfs if the runtime does not use systemd",
  SYSTEMD_UNAVAILABLE: 'check systemctl status dbus; busctl must be installed (it comes with systemd)',
  REMOUNT_FAILED: 'see the errno in the message',
  EXCEEDS_NODE: 'ask for less, or raise the limit of the cgroup that the message names',
  NODE_FULL: 'use --defer to resize the pod when other pods need less, or ask for less',
  RESTART_REQUIRED: 'resize the pod through the API server: kubectl patch pod POD --subresource resize --patch ...',
  EXCLUSIVE_CPUS: 'create the pod again with other CPU values; kubelet assigns its CPUs at creation only',
  PINNED_MEMORY: 'create the pod again with other memory values; kubelet assigns its memory at creation only',
  SWAP_NOT_RESIZABLE:
    'change the limit alone, or create the pod again with another memory request; kubelet derives the swap limit at creation only',
  QOS_CLASS_CHANGES:
    'change limits and requests together as the message says; a pod gets another QoS class only if it is created again',
  DEADLINE: 'use a longer deadline',
  UNDO_FAILED: 'compare the pod with its limits; the shim tries again every 5 s, and at the next update',
  JOURNAL_UNAVAILABLE:
    'free space or fix the folder or file that the message names (--state-folder); until then the shim rejects resizes and forwards all other calls',
  AMBIGUOUS_POD: 'use the full sandbox ID',
  UNKNOWN_RESIZE: 'list the last resizes with resizectl events; to follow a resize, call WatchResizes while it runs',
  TOO_MANY_RESIZES: 'wait for some to end, or cancel deferred ones',
  TOO_MANY_WATCHERS: 'end a watch that is not in use',
  OVERLOADED: 'try again later; make fewer calls at the same time, with shorter requests',
  WATCHER_TOO_SLOW: 'watch again, which starts with the current states; read faster',
  BACKEND_UNAVAILABLE: 'try again when it responds',
  BACKEND_FAILED: "see containerd's log",
  UNKNOWN_SERVICE: 'use "" or criresize.v1alpha1.ResizeService',
  SUPERSEDED: 'none: the newest value of each field is in force',
  STOPPING: 'try again: deferred resizes continue after a restart',
  INTERNAL: 'report it, with the log line',
};

/** Returns the remedy for a reason code; undefined if the code is unknown. */
const remedyOf = (reason: string): string | undefined =>
  Object.hasOwn(remedies, reason) ? remedies[reason as Reason] : undefined;
