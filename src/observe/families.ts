import type { Description } from './family.ts';

const describe = <const Labels extends readonly string[]>(
  type: Description['type'],
  name: string,
  labels: Labels,
  help: string,
): Description<Labels> => ({ type, name, labels, help });

const ours = <const Labels extends readonly string[]>(
  type: Description['type'],
  name: string,
  labels: Labels,
  help: string,
): Description<Labels> => describe(type, `cri_resize_shim_${name}`, labels, help);

/**
 * Everything that Prometheus is told, in the order in which it is told: docs/metrics.md has the same table. What is counted as it
 * happens is fed by counters.ts; a gauge, and what the process says of itself, is read when somebody asks (src/monitoring).
 */
export const families = {
  buildInfo: ours(
    'gauge',
    'build_info',
    ['version', 'node_version'],
    'Always 1; the labels tell which program this is.',
  ),
  ready: ours(
    'gauge',
    'ready',
    ['check'],
    '1 where nothing stands in the way of resizes, else 0; /readyz?verbose says what.',
  ),
  connections: ours('gauge', 'client_connections', [], 'Connections of CRI clients that are open.'),
  pods: ours('gauge', 'pods', [], 'Pods that the shim knows of.'),
  volumes: ours('gauge', 'volumes', [], 'Memory-backed volumes that may be resized.'),
  volumeSize: ours('gauge', 'volumes_size_bytes', [], 'What all of them together may hold.'),
  volumeUse: ours('gauge', 'volumes_used_bytes', [], 'What is stored in all of them together.'),
  unfinished: ours(
    'gauge',
    'unfinished_resizes',
    ['state'],
    'Resizes of the resize API and of annotations that have not ended, by state.',
  ),
  foresightPresent: ours(
    'gauge',
    'foresight_present',
    [],
    '1 where there is a file of what kubelet has admitted, and it is read, else 0.',
  ),

  callDuration: ours(
    'histogram',
    'call_duration_seconds',
    ['method', 'code'],
    'Calls that the shim acts on or serves itself, by gRPC code: from their arrival to their answer.',
  ),
  callAdded: ours(
    'histogram',
    'call_added_seconds',
    ['method'],
    "How much of that the shim has added: the time that was not the backend's.",
  ),
  passedCalls: ours(
    'counter',
    'passed_calls_total',
    ['method', 'outcome'],
    'Calls that only pass, by how they ended for their client: answered (with whatever code), cancelled, reset, unavailable.',
  ),
  failOpen: ours(
    'counter',
    'fail_open_total',
    ['reason'],
    'Requests that were meant to be acted on and went on as they came.',
  ),
  protocolErrors: ours(
    'counter',
    'protocol_errors_total',
    ['code'],
    'Connections that were ended because their peer broke HTTP/2, by HTTP/2 error code.',
  ),

  resizes: ours(
    'counter',
    'resizes_total',
    ['state', 'direction'],
    'Requests to resize a pod, of whatever origin, by how they ended (Completed, Deferred, Infeasible) and where limits and sizes were to go (up, down, both, same; unknown where they were refused before the pod was read). Each try of a deferred one counts.',
  ),
  resizeStates: ours(
    'counter',
    'resize_states_total',
    ['state'],
    'States that resizes of the resize API and of annotations have entered, as KEP-1287 counts them: with nothing under way or deferred, Proposed is the sum of Completed, Infeasible and Canceled.',
  ),
  stepDuration: ours(
    'histogram',
    'step_duration_seconds',
    ['kind'],
    "Steps that were carried out: a remount, a write to the pod's cgroup, a call to the runtime.",
  ),
  undos: ours(
    'counter',
    'undos_total',
    ['outcome'],
    'Resizes whose steps were taken back after a later one had failed: undone, or failed (the pod is marked until it is mended).',
  ),
  recoveries: ours(
    'counter',
    'recoveries_total',
    ['outcome'],
    'Resizes that were found half done, by a restart or a failed undo: finished, undone, gone with their pod, failed.',
  ),
  reclaimDuration: ours(
    'histogram',
    'reclaim_duration_seconds',
    ['outcome'],
    'Reclaims before a memory limit was lowered: from the first look until use was under it, or was known not to come there.',
  ),
  oomKills: ours(
    'counter',
    'oom_kills_total',
    [],
    'Processes that the OOM killer has killed in a cgroup while its limit was lowered. To stay 0.',
  ),
  remounts: ours(
    'counter',
    'remounts_total',
    ['direction', 'result'],
    'Sizes given to memory-backed volumes: done; refused, where more is stored; failed. Taken back counts, too.',
  ),
  journalFaults: ours(
    'counter',
    'journal_faults_total',
    ['fault'],
    'What the journal could not do: bad_record (one could not be read), unavailable (none could be written).',
  ),
  notifyFaults: ours(
    'counter',
    'notify_faults_total',
    [],
    'Whether systemd could be told how the shim is (1 where it could not, and then only once); only where systemd asks for it.',
  ),

  foresight: ours(
    'counter',
    'foresight_events_total',
    ['event'],
    'What has come of it: unreadable (a file or a part of one), stuck (a memory limit that kubelet does not lower, since more is in use), unstuck (lowered since), deferred (waiting for what cannot be reclaimed), given_up (after ten minutes).',
  ),
  foresightReclaimed: ours(
    'counter',
    'foresight_reclaimed_bytes_total',
    [],
    'Memory that was reclaimed for limits which kubelet is about to lower.',
  ),

  eventLoopLag: ours(
    'histogram',
    'event_loop_lag_seconds',
    [],
    'How late a timer was that is due five times in a second: what any call may have to wait.',
  ),
  processCpu: describe('counter', 'process_cpu_seconds_total', [], 'CPU time of the process, user and system.'),
  processMemory: describe('gauge', 'process_resident_memory_bytes', [], 'Resident memory of the process.'),
  processFiles: describe('gauge', 'process_open_fds', [], 'File descriptors that are open.'),
  processStart: describe(
    'gauge',
    'process_start_time_seconds',
    [],
    'When the process was started, in seconds since the epoch.',
  ),
} as const;
