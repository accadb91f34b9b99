import type { Reason } from '../../core/errors/index.ts';

/** What to do about each reason: the last column of docs/errors.md, which a test compares. */
export const cures: Readonly<Record<Reason, string>> = {
  INVALID_VALUE:
    'mend the request; the message names the field and the value; field is its path in a request of the resize API',
  INVALID_ANNOTATION: 'mend the annotation',
  UNKNOWN_POD: 'look at crictl pods',
  UNKNOWN_CONTAINER: 'look at crictl ps -a --pod',
  UNKNOWN_VOLUME: "look at the pod's volumes; only medium: Memory counts",
  INIT_CONTAINER_ENDED: 'leave it out of the request',
  MEMORY_NOT_RECLAIMABLE: 'free memory in the container, or ask for more than found',
  RECLAIM_TIMEOUT:
    'try again; give the call a longer deadline; look for files that cannot be written back, or processes that read more than the new limit holds',
  VOLUME_IN_USE: 'remove files, or ask for more than found',
  VOLUME_NOT_ELIGIBLE: 'nothing: the shim does not touch it',
  CGROUP_UNAVAILABLE: 'look whether the pod has ended; the message names the file',
  CGROUP_WRITE_FAILED: 'the message names file, value and errno',
  UNIT_UNAVAILABLE:
    "look at systemctl status UNIT; a pod's slice is made by kubelet, or by systemd when the pod's first container starts; --cgroup-driver cgroupfs where the runtime does without systemd",
  SYSTEMD_UNAVAILABLE: 'see systemctl status dbus; busctl has to be installed (it comes with systemd)',
  REMOUNT_FAILED: 'the message names the errno',
  EXCEEDS_NODE: 'ask for less, or raise the limit of the cgroup that the message names',
  DEADLINE: 'give it more time',
  UNDO_FAILED: 'compare the pod with its limits; the next update mends it',
  JOURNAL_UNAVAILABLE:
    'make room or mend the folder that the message names (--state-folder); until then resizes are refused, all other calls go on',
  AMBIGUOUS_POD: 'give the sandbox id in full',
  UNKNOWN_RESIZE: 'look at WatchResizes while it runs',
  TOO_MANY_RESIZES: 'wait for some to end, or cancel deferred ones',
  TOO_MANY_WATCHERS: 'end a watch that nobody reads',
  WATCHER_TOO_SLOW: 'watch anew: it begins with the present states; read faster',
  BACKEND_UNAVAILABLE: 'try again once it does',
  BACKEND_FAILED: "see containerd's log",
  UNKNOWN_SERVICE: 'ask for "" or criresize.v1alpha1.ResizeService',
  STOPPING: 'try again: deferred resizes go on after a restart',
  INTERNAL: 'report it, with the log line',
};

export const cureOf = (reason: string): string | undefined =>
  Object.hasOwn(cures, reason) ? cures[reason as Reason] : undefined;
