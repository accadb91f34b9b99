import { kubernetesReleases } from '../real-kubelet/programs.ts';
import { WITH_EITHER_DRIVER } from '../runner/selection.ts';
import { containerdReleases } from '../support/node/index.ts';

/** The commands of `npm run nightly`, in their order: what fails most likely and takes least comes first. */

export interface Step {
  /** Unique. */
  readonly name: string;
  /** Arguments of npm. */
  readonly command: readonly string[];
  /** Whether it builds programs from Go modules, so that it is left out without a Go toolchain. */
  readonly needsGo?: true;
}

const run = (script: string, ...flags: readonly string[]): readonly string[] =>
  flags.length === 0 ? ['run', script] : ['run', script, '--', ...flags];

const builtContainerd = ['2.0', '2.2', '2.3', '2.4'];
/** An old containerd, and the one with long-term support. */
const KUBELET_ON = ['1.7', '2.3'] as const;

export const steps: readonly Step[] = [
  { name: 'check', command: run('check') },
  { name: 'npm test', command: ['test'] },
  { name: 'tests under systemd', command: run('test:systemd') },
  { name: 'long tests under systemd', command: run('test:long') },
  // npm test runs them with the cgroupfs driver.
  { name: 'systemd cgroup driver', command: ['test', '--', '--init', 'systemd', ...WITH_EITHER_DRIVER] },
  { name: 'unit tests, Node 24', command: run('test:node24') },
  ...containerdReleases.map(
    (release): Step => ({
      name: `containerd ${release}`,
      command: run('versions', '--containerd', release),
      ...(builtContainerd.includes(release) && { needsGo: true }),
    }),
  ),
  { name: 'matrix, systemd', command: run('matrix', '--init', 'systemd') },
  ...kubernetesReleases.flatMap((kubelet) =>
    KUBELET_ON.map(
      (containerd): Step => ({
        name: `kubelet ${kubelet}, containerd ${containerd}`,
        command: run('kubelet', '--kubelet', kubelet, '--containerd', containerd, '--only', 'table', 'pods'),
        needsGo: true,
      }),
    ),
  ),
  // The cgroup controllers that User Mode Linux does not have: cpuset and hugetlb.
  { name: 'stock kernel', command: run('stock-kernel') },
  {
    name: 'kubelet, static CPU policy',
    command: run('kubelet', '--only', 'table', '--kernel', 'debian'),
    needsGo: true,
  },
  { name: 'kubelet under systemd', command: run('kubelet', '--only', 'installer', 'bypass'), needsGo: true },
  { name: 'VPA', command: run('vpa'), needsGo: true },
  { name: 'tests of Kubernetes', command: run('k8s-e2e'), needsGo: true },
  { name: 'CRI tests of containerd', command: run('cri-integration'), needsGo: true },
  { name: 'crash points', command: run('crash') },
  { name: 'crash points, systemd', command: run('crash', '--init', 'systemd') },
  { name: 'chaos', command: run('chaos', '--rounds', '200') },
  { name: 'soak', command: run('soak', '--resizes', '100000', '--pods', '1000') },
  { name: 'fuzz', command: run('fuzz', '--inputs', '10000000') },
  { name: 'interop', command: run('interop'), needsGo: true },
  { name: 'limits', command: run('limits') },
  { name: 'blocking', command: run('blocking') },
  { name: 'mutation', command: run('mutation') },
  { name: 'image', command: run('image') },
  { name: 'bench', command: run('bench', '--check') },
];
