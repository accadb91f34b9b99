/**
 * The commands of README and docs/ that run on a node, in the order in which test/e2e/command-line/docs.test.ts runs
 * them. Between chapters, that test brings the node into the state that the pages describe.
 */
export interface Chapter {
  readonly name:
    | 'without a shim'
    | 'a running pod'
    | 'more in use than requested'
    | 'kubelet lowers a limit below usage'
    | 'a read-only state folder'
    | 'a shim started by a page';
  /** The lines on the pages. */
  readonly lines: readonly string[];
}

const metrics = (filter: string): string => `curl -s http://127.0.0.1:9467/metrics | ${filter}`;

export const chapters: readonly Chapter[] = [
  { name: 'without a shim', lines: ['resizectl get pods', 'cri-resize-shim --metrics-bind 0.0.0.0:9467'] },
  {
    name: 'a running pod',
    lines: [
      'resizectl get pods',
      'resizectl doctor',
      'resizectl top',
      'resizectl top --containers -n default',
      'resizectl top --watch --interval 1s | head -3',
      'resizectl plan web app.memory=1Gi volume.cache=50%',
      'resizectl resize web app.memory=1Gi volume.cache=50%',
      'resizectl resize default/web volume.cache=512Mi',
      'resizectl resize default/web web.memory=512Mi volume.cache=50%',
      'curl http://127.0.0.1:9467/metrics',
      "curl 'http://127.0.0.1:9467/readyz?verbose'",
      metrics('grep fail_open_total{'),
      metrics("grep -E '^cri_resize_shim_(client_connections|pods) '"),
      metrics(`grep -E '(undos|recoveries)_total{outcome="failed"}'`),
      metrics('grep ^cri_resize_shim_oom_kills_total'),
      metrics("grep -E 'event_loop_lag_seconds_(sum|count)'"),
    ],
  },
  {
    name: 'more in use than requested',
    lines: [
      'resizectl plan web app.memory=100Gi app.requests.memory=100Gi',
      'resizectl plan web app.memory=64Mi',
      'resizectl plan web volume.cache=64Mi',
      'resizectl resize web volume.cache=64Mi --defer',
      'resizectl get pods',
      'resizectl describe pod web',
    ],
  },
  {
    name: 'kubelet lowers a limit below usage',
    lines: ['resizectl describe pod web', metrics("grep -v '#' | grep foresight")],
  },
  { name: 'a read-only state folder', lines: ["curl -s 'http://127.0.0.1:9467/readyz?verbose'"] },
  { name: 'a shim started by a page', lines: ['cri-resize-shim --metrics-bind 127.0.0.1:9467'] },
];
