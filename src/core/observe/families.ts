import type { Description } from './family.ts';

const describe =
  (type: Description['type']) =>
  <const Labels extends readonly string[]>(name: string, labels: Labels, help: string): Description<Labels> => ({
    type,
    name: name.startsWith('process_') ? name : `cri_resize_shim_${name}`,
    labels,
    help,
  });
const gauge = describe('gauge');
const counter = describe('counter');
const histogram = describe('histogram');

/**
 * All metric families, in the order of the exposition; docs/metrics.md has the same table. counters.ts feeds counters
 * and histograms as events happen. Gauges and process metrics are read at each scrape (src/monitoring).
 */
export const families = {
  buildInfo: gauge(
    'build_info',
    ['version', 'node_version'],
    'Always 1; the labels give the versions of the shim and of Node.',
  ),
  ready: gauge(
    'ready',
    ['check'],
    'Whether the shim can apply resizes: 1 if the check passes, otherwise 0. /readyz?verbose shows the cause.',
  ),
  intercepting: gauge(
    'intercepting',
    [],
    'Whether the shim acts on resizes: 1 if so, 0 if it forwards every call unchanged (intercept: false, or an invalid configuration).',
  ),
  connections: gauge('client_connections', [], 'Open connections of CRI clients.'),
  pods: gauge('pods', [], 'Pods known to the shim.'),
  volumes: gauge('volumes', [], 'Memory-backed volumes that the shim can resize.'),
  volumeSize: gauge(
    'volumes_size_bytes',
    [],
    'Total size of the memory-backed volumes that the shim can resize, in bytes.',
  ),
  volumeUse: gauge(
    'volumes_used_bytes',
    [],
    'Total bytes stored in the memory-backed volumes that the shim can resize.',
  ),
  unfinished: gauge(
    'unfinished_resizes',
    ['state'],
    'Unfinished resizes requested through the resize API or pod annotations, by state.',
  ),
  foresightPresent: gauge(
    'foresight_present',
    [],
    'Whether the shim reads the resizes that kubelet has admitted from its state files: 1 if so, otherwise 0.',
  ),

  kubeletEndpoint: gauge(
    'kubelet_endpoint',
    ['state'],
    'Which runtime kubelet uses, 1 for the present state, otherwise 0: shim, next_start (the shim, but not after its next start), past (another runtime, although it has used the shim before), unused (another runtime, and it has never used the shim), unknown (no kubelet is visible, or the bypass serves it).',
  ),

  bypassStart: gauge(
    'bypass_start_time_seconds',
    [],
    'Time at which the bypass last began to serve clients without the shim, in seconds since the Unix epoch; 0 if it has not since the boot.',
  ),
  bypassEnd: gauge(
    'bypass_end_time_seconds',
    [],
    'Time at which the bypass last ended, in seconds since the Unix epoch; 0 if it has not, or if clients still use it.',
  ),

  callDuration: histogram(
    'call_duration_seconds',
    ['method', 'code'],
    'Duration of calls that the shim intercepts or serves itself, in seconds from request to response, by method and gRPC code.',
  ),
  callAdded: histogram(
    'call_added_seconds',
    ['method'],
    'Time that the shim added to intercepted calls, in seconds without the time spent in the backend, by method.',
  ),
  passedCalls: counter(
    'passed_calls_total',
    ['method', 'outcome'],
    'Calls forwarded without changes or as a stream of events, by method and outcome for the client: answered (with any gRPC code), cancelled, reset, unavailable.',
  ),
  failOpen: counter(
    'fail_open_total',
    ['reason'],
    'Requests forwarded unchanged because the shim could not act on them, by reason.',
  ),
  protocolErrors: counter(
    'protocol_errors_total',
    ['code'],
    'Connections closed because the peer violated HTTP/2, by HTTP/2 error code.',
  ),

  resizes: counter(
    'resizes_total',
    ['state', 'direction'],
    'Attempts to resize a pod, from any source, by resulting state (Completed, Deferred, Infeasible) and direction (up, down, both, same; unknown if rejected before the pod was read). Each retry of a deferred resize counts, but none that was superseded while it waited.',
  ),
  resizeStates: counter(
    'resize_states_total',
    ['state'],
    'State transitions of resizes, from any source, by state entered, as defined in KEP-1287. When no resize is in progress or deferred, Proposed equals the sum of Completed, Infeasible and Canceled. A request of a CRI client that changes nothing does not count. One that is deferred also counts as Canceled: its client repeats it as a new request.',
  ),
  stepDuration: histogram(
    'step_duration_seconds',
    ['kind'],
    'Duration of resize steps, in seconds, by kind: a remount, a write to the cgroup of the pod, a call to the runtime.',
  ),
  undos: counter(
    'undos_total',
    ['outcome'],
    'Rollbacks after a failed resize step, by outcome: undone, failed (the pod is marked until it is recovered).',
  ),
  recoveries: counter(
    'recoveries_total',
    ['outcome'],
    'Recoveries of resizes that a restart or a failed rollback left unfinished, by outcome: finished, undone, gone (the pod ended), failed.',
  ),
  reclaimDuration: histogram(
    'reclaim_duration_seconds',
    ['outcome'],
    'Duration of memory reclaim before a memory limit is lowered, in seconds until usage is below the limit or reclaim stops, by outcome.',
  ),
  oomKills: counter(
    'oom_kills_total',
    [],
    'Processes killed by the OOM killer in a cgroup while its memory limit was being lowered. Expected to be 0.',
  ),
  remounts: counter(
    'remounts_total',
    ['direction', 'result'],
    'Remounts of memory-backed volumes, by direction and result: done, refused (the volume stores more than its new size), failed. Rollbacks count.',
  ),
  journalFaults: counter(
    'journal_faults_total',
    ['fault'],
    'Journal faults, by kind: bad_record (not a record), newer_record (of a newer shim, ignored), unread_record (the disk does not return a record, read again), unavailable (no record can be written). Expected to be 0.',
  ),
  notifyFaults: counter(
    'notify_faults_total',
    [],
    'Failures to notify systemd of the status of the shim, counted once per run. Expected to be 0.',
  ),

  foresight: counter(
    'foresight_events_total',
    ['event'],
    'Events of memory decreases admitted by kubelet, by event: unreadable (a kubelet state file or a part of it), stuck (usage keeps kubelet from lowering the limit), held (usage is held below the limit until kubelet lowers it), unstuck (kubelet has lowered it after a hold), deferred (memory cannot be reclaimed), given_up (after ten minutes).',
  ),
  foresightReclaimed: counter(
    'foresight_reclaimed_bytes_total',
    [],
    'Bytes of memory reclaimed for limits that kubelet is about to lower.',
  ),

  logDropped: counter(
    'log_lines_dropped_total',
    ['reason'],
    'Log lines that were not written, by reason: slow_reader (the reader of the log does not take them), rate (too many lines of one message).',
  ),
  ignoredPods: counter(
    'pod_objects_ignored_total',
    ['reason'],
    'Pod objects of the API server ignored because they claim the uid of another pod or are too large, by reason: other_pod (the pod of this node has another namespace or name), not_static (a mirror pod of a pod that is not static), duplicate_uid (the uid of an earlier object), too_large (longer than 12 MiB). Expected to be 0.',
  ),
  refused: counter(
    'refused_total',
    ['budget'],
    'Connections, streams, calls and bytes refused because a budget was used up, by budget (docs/limits.md).',
  ),

  eventLoopLag: histogram(
    'event_loop_lag_seconds',
    [],
    'Delay of a timer that fires five times per second, in seconds: how long a call may wait for the event loop.',
  ),
  processCpu: counter('process_cpu_seconds_total', [], 'User and system CPU time of the process, in seconds.'),
  processMemory: gauge('process_resident_memory_bytes', [], 'Resident memory of the process, in bytes.'),
  processFiles: gauge('process_open_fds', [], 'Open file descriptors of the process.'),
  processStart: gauge('process_start_time_seconds', [], 'Start time of the process, in seconds since the Unix epoch.'),
} as const;
