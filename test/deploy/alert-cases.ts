/** A test case of an alert in deploy/alerts.yaml: series by minute, a time without and a time with the alert. */
export interface AlertCase {
  readonly alert: string;
  /** Values by series, in promtool's notation: `0x10` is eleven zeros, `0+1x5` starts at 0 and adds 1 five times. */
  readonly series: Readonly<Record<string, string>>;
  readonly calm: string;
  readonly fires: string;
  /** A later time at which the alert still fires. */
  readonly stays?: string;
  /** Labels of the alerts that fire, in addition to those of the rule. */
  readonly labels: readonly Readonly<Record<string, string>>[];
}

const place = 'job="cri-resize-shim", instance="a"';
const at = { job: 'cri-resize-shim', instance: 'a' };
const one = (name: string, labels = ''): string => `${name}{${place}${labels === '' ? '' : `, ${labels}`}}`;
const ours = (name: string, labels = ''): string => one(`cri_resize_shim_${name}`, labels);

/** A case with a counter that is 0 for ten minutes and then counts one event. */
const first = (alert: string, series: string, labels: Readonly<Record<string, string>> = {}): AlertCase => ({
  ...{ alert, calm: '10m', fires: '12m' },
  series: { [series]: '0x10 1x20' },
  labels: [{ ...at, ...labels }],
});

/** Series of a hundred nodes, of which `second` have the second value and the others the first. */
const nodes = (
  series: (instance: string) => string,
  values: readonly [string, string],
  second: number,
): Record<string, string> =>
  Object.fromEntries(
    Array.from({ length: 100 }, (_, index) => [series(`n${index}`), index < second ? values[1] : values[0]]),
  );
const onNode = (name: string, labels: string) => (instance: string) =>
  `cri_resize_shim_${name}{job="cri-resize-shim", instance="${instance}", ${labels}}`;
const builds = nodes(onNode('build_info', 'version="1", node_version="v24"'), ['1x40', '1x40'], 0);

/** From kube-state-metrics. */
const wanted =
  'kube_daemonset_status_desired_number_scheduled{namespace="cri-resize-shim", daemonset="cri-resize-shim-installer"}';

/** Cases in which an alert does not fire, at any time. */
export const quietCases: readonly Pick<AlertCase, 'alert' | 'series'>[] = [
  // No node has the label yet, or any more.
  { alert: 'CriResizeShimAbsent', series: { [wanted]: '0x1700' } },
  { alert: 'CriResizeShimAbsent', series: { ...builds, [wanted]: '100x40' } },
  // A node that waits for its turn in the rollout: the installer answers without metrics.
  { alert: 'CriResizeShimDown', series: { [`up{${place}}`]: '1x1700' } },
  // An invalid configuration has its own alerts.
  { alert: 'CriResizeShimNotReady', series: { [ours('ready', 'check="configuration"')]: '0x40' } },
  {
    alert: 'CriResizeShimFleetNotReady',
    series: { ...builds, ...nodes(onNode('ready', 'check="configuration"'), ['0x40', '0x40'], 0) },
  },
];

export const alertCases: readonly AlertCase[] = [
  first('CriResizeShimUndoFailed', ours('undos_total', 'outcome="failed"')),
  first('CriResizeShimRecoveryFailed', ours('recoveries_total', 'outcome="failed"')),
  first('CriResizeShimOomKill', ours('oom_kills_total')),
  {
    alert: 'CriResizeShimNotReady',
    series: {
      [ours('ready', 'check="journal"')]: '1x5 0x20',
      [ours('ready', 'check="kubernetes"')]: '0x30',
      [ours('ready', 'check="kubelet"')]: '0x30',
      [ours('ready', 'check="records"')]: '0x30',
      // With an invalid configuration, the shim forwards resizes.
      [ours('ready', 'check="configuration"')]: '0x30',
    },
    ...{ calm: '10m', fires: '12m', labels: [{ ...at, check: 'journal' }] },
  },
  {
    alert: 'CriResizeShimConfigurationInvalid',
    series: { [ours('ready', 'check="configuration"')]: '1x5 0x20', [ours('ready', 'check="journal"')]: '0x30' },
    ...{ calm: '10m', fires: '12m', labels: [at] },
  },
  {
    alert: 'CriResizeShimNotIntercepting',
    // Switched off for less than an hour: somebody is working on an incident.
    series: { [ours('intercepting')]: '0x50 1 0x90' },
    ...{ calm: '100m', fires: '115m', labels: [at] },
  },
  {
    alert: 'CriResizeShimKubernetesUnreachable',
    series: { [ours('ready', 'check="kubernetes"')]: '1x5 0x60', [ours('ready', 'check="journal"')]: '0x60' },
    ...{ calm: '30m', fires: '40m', labels: [at] },
  },
  {
    alert: 'CriResizeShimDrift',
    // A state of less than a minute does not fire the alert, nor does a kubelet that never used the shim.
    series: {
      [ours('kubelet_endpoint', 'state="past"')]: '0x10 1 0x9 1x20',
      [ours('kubelet_endpoint', 'state="next_start"')]: '0x40',
      [ours('kubelet_endpoint', 'state="unused"')]: '1x40',
    },
    ...{ calm: '15m', fires: '25m', labels: [{ ...at, state: 'past' }] },
  },
  {
    alert: 'CriResizeShimDown',
    // A target that never was a shim does not count as down.
    series: {
      [`up{${place}}`]: '1x10 0x1700',
      'up{job="other", instance="a"}': '0x1700',
      [ours('build_info', 'version="1", node_version="v24"')]: '1x10',
    },
    ...{ calm: '12m', fires: '20m', stays: '26h', labels: [at] },
  },
  {
    alert: 'CriResizeShimBypassed',
    // A bypass that has ended does not fire the alert, nor does one that has never begun.
    series: {
      [ours('bypass_start_time_seconds')]: '0x5 100x10 200x30',
      [ours('bypass_end_time_seconds')]: '0x5 100x40',
    },
    ...{ calm: '16m', fires: '25m', labels: [at] },
  },
  first('CriResizeShimFailOpen', ours('fail_open_total', 'reason="unknown_pod"'), { reason: 'unknown_pod' }),
  first('CriResizeShimJournalFault', ours('journal_faults_total', 'fault="unavailable"'), { fault: 'unavailable' }),
  {
    alert: 'CriResizeShimUndoing',
    // A single rollback does not fire the alert.
    series: { [ours('undos_total', 'outcome="undone"')]: '0x10 1x20 2x20 3+1x40' },
    ...{ calm: '50m', fires: '80m', labels: [at] },
  },
  {
    alert: 'CriResizeShimDeferredLong',
    // The first deferred resize ends after 50 minutes, the second one stays.
    series: {
      [ours('unfinished_resizes', 'state="Deferred"')]: '1x50 0 1x90',
      [ours('unfinished_resizes', 'state="InProgress"')]: '1x140',
    },
    ...{ calm: '100m', fires: '115m', labels: [{ ...at, state: 'Deferred' }] },
  },
  first('CriResizeShimDecreaseStuck', ours('foresight_events_total', 'event="given_up"')),
  first('CriResizeShimForesightUnreadable', ours('foresight_events_total', 'event="unreadable"')),
  {
    alert: 'CriResizeShimReclaimTimeouts',
    series: {
      [ours('reclaim_duration_seconds_count', 'outcome="timeout"')]: '0x10 2x20 6x40',
      [ours('reclaim_duration_seconds_count', 'outcome="done"')]: '0+1x70',
    },
    ...{ calm: '25m', fires: '40m', labels: [at] },
  },
  slow('CriResizeShimSlow', 'call_added_seconds_bucket', 'method="/runtime.v1.RuntimeService/ContainerStatus", '),
  slow('CriResizeShimEventLoopLag', 'event_loop_lag_seconds_bucket', ''),
  {
    alert: 'CriResizeShimBackendGone',
    series: { [ours('passed_calls_total', 'method="/m", outcome="unavailable"')]: '0x10 0+60x30' },
    ...{ calm: '10m', fires: '25m', labels: [at] },
  },
  first('CriResizeShimProtocolErrors', ours('protocol_errors_total', 'code="PROTOCOL_ERROR"'), {
    code: 'PROTOCOL_ERROR',
  }),
  {
    alert: 'CriResizeShimRestarting',
    series: {
      [one('process_start_time_seconds')]: '1x20 2x5 3x5 4x5 5x5 6x30',
      [ours('build_info', 'version="1", node_version="v24"')]: '1x70',
      // The series of another job.
      ['process_start_time_seconds{job="other", instance="a"}']: '0+1x70',
    },
    ...{ calm: '30m', fires: '45m', labels: [at] },
  },
  {
    alert: 'CriResizeShimMemory',
    series: {
      [one('process_resident_memory_bytes')]: '8e7x20 3e8x60',
      [ours('build_info', 'version="1", node_version="v24"')]: '1x80',
      ['process_resident_memory_bytes{job="other", instance="a"}']: '9e9x80',
    },
    ...{ calm: '45m', fires: '60m', labels: [at] },
  },
  {
    alert: 'CriResizeShimFleetNotReady',
    // One failing node of a hundred is within the limit of 1 %, and a second one exceeds it.
    series: {
      ...nodes(onNode('ready', 'check="journal"'), ['1x40', '1x10 0x30'], 2),
      [onNode('ready', 'check="journal"')('n0')]: '0x40',
      // Optional: the resizes of some pods are rejected.
      ...nodes(onNode('ready', 'check="records"'), ['0x40', '0x40'], 0),
      ...nodes(onNode('ready', 'check="configuration"'), ['0x40', '0x40'], 0),
      ...builds,
    },
    ...{ calm: '10m', fires: '20m', labels: [{ job: at.job }] },
  },
  {
    alert: 'CriResizeShimFleetConfigurationInvalid',
    series: { ...nodes(onNode('ready', 'check="configuration"'), ['1x40', '1x10 0x30'], 2), ...builds },
    ...{ calm: '15m', fires: '20m', labels: [{ job: at.job }] },
  },
  {
    alert: 'CriResizeShimFleetFailOpen',
    series: { ...nodes(onNode('fail_open_total', 'reason="undecodable"'), ['0x40', '0x10 0+1x30'], 2), ...builds },
    ...{ calm: '10m', fires: '25m', labels: [{ job: at.job }] },
  },
  {
    alert: 'CriResizeShimAbsent',
    // One node remains until minute 20. The DaemonSet still wants all of them.
    series: {
      ...nodes(onNode('build_info', 'version="1", node_version="v24"'), ['1x20', '1x5'], 99),
      [wanted]: '100x1700',
    },
    ...{ calm: '30m', fires: '40m', stays: '26h', labels: [{}] },
  },
  {
    alert: 'CriResizeShimVersionsMixed',
    series: {
      [ours('build_info', 'version="1", node_version="v24"')]: '1x3000',
      ['cri_resize_shim_build_info{job="cri-resize-shim", instance="b", version="2", node_version="v24"}']: '1x3000',
    },
    ...{ calm: '1000m', fires: '1500m', labels: [{ job: at.job }] },
  },
];

/** A case with a histogram whose observations are below 1 ms for ten minutes, and then up to half a second. */
function slow(alert: string, name: string, labels: string): AlertCase {
  const buckets: readonly (readonly [le: string, values: string])[] = [
    ['0.001', '0+100x10 1000x40'],
    ['0.05', '0+100x10 1000x40'],
    ['0.1', '0+100x10 1000x40'],
    ['0.5', '0+100x50'],
    ['+Inf', '0+100x50'],
  ];
  return {
    ...{ alert, calm: '15m', fires: '40m', labels: [at] },
    series: Object.fromEntries(buckets.map(([le, values]) => [ours(name, `${labels}le="${le}"`), values])),
  };
}
