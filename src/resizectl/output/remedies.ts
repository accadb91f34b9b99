import type { Reason } from '../../core/errors/index.ts';

/** What to do about each reason. A test compares them with the last column of docs/errors.md. */
export const remedies: Readonly<Record<Reason, string>> = {
  INVALID_VALUE:
    'fix the request; the message names the field and the value; field is its path in a request of the resize API',
  INVALID_ANNOTATION: 'fix the annotation',
  UNKNOWN_POD: 'check crictl pods',
  UNKNOWN_CONTAINER: 'check crictl ps -a --pod',
  UNKNOWN_VOLUME: "check the pod's volumes; only those with medium: Memory can be resized",
  INIT_CONTAINER_ENDED: 'remove the container from the request',
  MEMORY_NOT_RECLAIMABLE: 'free memory in the container, or ask for more than found',
  RECLAIM_TIMEOUT:
    'try again with a longer deadline; check for dirty pages that cannot be written back, and for processes that read more files than the new limit holds',
  VOLUME_IN_USE: 'remove files, or ask for more than found',
  VOLUME_NOT_ELIGIBLE: 'none: the shim does not resize this mount',
  CGROUP_UNAVAILABLE: 'check whether the pod has ended; the message names the file',
  CGROUP_WRITE_FAILED: 'see the message: it names the file, the value and the errno',
  UNIT_UNAVAILABLE:
    "check systemctl status UNIT; kubelet creates a pod's slice, or systemd does when the first container of the pod starts; use --cgroup-driver cgroupfs if the runtime does not use systemd",
  SYSTEMD_UNAVAILABLE: 'check systemctl status dbus; busctl, a part of systemd, must be installed',
  REMOUNT_FAILED: 'see the message: it names the errno',
  EXCEEDS_NODE: 'ask for less, or raise the limit of the cgroup that the message names',
  DEADLINE: 'use a longer timeout',
  UNDO_FAILED: 'compare the pod with its limits; the next update recovers it',
  JOURNAL_UNAVAILABLE:
    'free disk space or fix the folder that the message names (--state-folder); until then the shim rejects resizes and forwards all other calls',
  AMBIGUOUS_POD: 'specify the full sandbox id',
  UNKNOWN_RESIZE: 'use WatchResizes while the resize runs',
  TOO_MANY_RESIZES: 'wait until some resizes end, or cancel deferred ones',
  TOO_MANY_WATCHERS: 'end a watch that is not needed',
  WATCHER_TOO_SLOW: 'watch again, the stream starts with the current states; read faster',
  BACKEND_UNAVAILABLE: 'try again once containerd answers',
  BACKEND_FAILED: 'check the log of containerd',
  UNKNOWN_SERVICE: 'ask for "" or criresize.v1alpha1.ResizeService',
  STOPPING: 'try again: deferred resizes continue after a restart',
  INTERNAL: 'report it with the log line',
};

export const remedyOf = (reason: string): string | undefined =>
  Object.hasOwn(remedies, reason) ? remedies[reason as Reason] : undefined;
