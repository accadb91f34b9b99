import { type ContainerdRelease, containerdReleases } from '../support/node/index.ts';
import { ALL_UNDER_SYSTEMD } from './selection.ts';

/** The releases of containerd on which the suites `e2e` and `versions` run end-to-end tests, and which files. */

/** Debian has it. Nodes with systemd run it. */
export const DEBIANS: ContainerdRelease = '2.1';
/** The release with long-term support, which has to be built. */
const LONG_TERM: ContainerdRelease = '2.3';
const OLD: ContainerdRelease = '1.7';

/** The release on which `npm test` runs its end-to-end tests, and the suite `e2e` all that need no systemd. */
export const mainRelease = (canBuild: boolean): ContainerdRelease => (canBuild ? LONG_TERM : DEBIANS);

/** The releases of the suite `e2e`, from old to new. */
export const usualReleases = (canBuild: boolean): readonly ContainerdRelease[] => [OLD, mainRelease(canBuild)];

/** Test files that do not run on a release of containerd, because it lacks what they test. */
const UNSUITABLE: Readonly<Partial<Record<ContainerdRelease, readonly string[]>>> = {
  '1.6': [
    ...['volume*', 'tmpfs*', 'own-mounts', 'foresight*', 'hold', 'foreign-remount', 'reclaim', 'bad-input/*'],
    ...['kubernetes', 'resizectl', 'doctor', 'docs', 'upgrade', 'image', 'removed-container'],
    // This release supports neither the call nor NRI.
    ...['container-events', 'nri'],
  ],
  // It sends each event to one client only, so that direct and forwarded events cannot be compared, and NRI is off by
  // default.
  '1.7': ['container-events', 'nri'],
  // These tests may crash containerd.
  '2.3': ['removed-container'],
  '2.4': ['removed-container'],
};

/**
 * Test files that do not depend on the release of containerd: those between kernel and shim, and those between shim and
 * Kubernetes, systemd or a user. A node takes minutes, so they run on one release only, unless others are named.
 */
const INDEPENDENT = [
  ...['foresight*', 'hold', 'volume*', 'tmpfs*', 'own-mounts', 'foreign-remount', 'reclaim', 'bad-input/*', 'journal'],
  ...['declared-pod', 'admission', 'memory-qos', 'swap', 'kubernetes', 'resizectl', 'doctor', 'docs', 'upgrade'],
  // These check the verbose status, and records that containerd does not use.
  ...['status', 'withheld-records'],
];

/** Test files for runc nodes: crun makes all mounts of ctr's containers private, which hides later volumes. */
const FOR_RUNC = ['image'];

/** The suite `matrix` runs more than these. */
const OF_THE_MATRIX = ['matrix'];

const pattern = (name: string): string => `test/e2e/**/${name}.test.ts`;

const unsuitable = (release: ContainerdRelease): readonly string[] => UNSUITABLE[release] ?? [];

/** Returns the test files that a release's node without systemd skips, when all suitable files run. */
export const excludedOf = (release: ContainerdRelease): readonly string[] => [
  ...unsuitable(release).map(pattern),
  ...ALL_UNDER_SYSTEMD,
];

/** Returns the test files that a release's node without systemd skips, when only release-dependent files run. */
export const excludedAsIndependent = (release: ContainerdRelease): readonly string[] => [
  ...excludedOf(release),
  ...[...INDEPENDENT, ...OF_THE_MATRIX].map(pattern),
];

/** Returns the test files that the main release's node with crun skips. */
export const excludedOfMain = (release: ContainerdRelease): readonly string[] => [
  ...excludedOf(release),
  ...[...FOR_RUNC, ...OF_THE_MATRIX].map(pattern),
];

/** Returns the named releases, from old to new. */
export const inOrder = (named: readonly ContainerdRelease[]): readonly ContainerdRelease[] =>
  containerdReleases.filter((release) => named.includes(release));
