import { existsSync } from 'node:fs';
import { relative, resolve } from 'node:path';
import { type ContainerdRelease, containerdReleases } from '../support/node/index.ts';

/** Selects which tests `npm test` runs, and where, by the lists below and the command line. */

/**
 * The end-to-end tests of `npm test` on the main release of containerd: the main job, and nothing that depends on how
 * fast the machine is. The suite `e2e` runs all.
 */
export const MAIN: readonly string[] = [
  'backend/backend',
  'command-line/doctor',
  'container/entry',
  'node/node',
  'resize/cgroups',
  'resize/nri',
  'resize/resize',
  'restart/journal',
  'restart/restart',
  'volumes/volumes',
].map((name) => `test/e2e/${name}.test.ts`);

/** The end-to-end tests of `npm test` in a node with systemd as its first process. */
export const MAIN_UNDER_SYSTEMD: readonly string[] = ['test/e2e/systemd/systemd.test.ts'];

/** Tests that need a node with systemd as its first process. All other end-to-end tests run without systemd. */
export interface SystemdTests {
  readonly systemd: readonly string[];
  /** Those that also need the executable. */
  readonly installing: readonly string[];
}

/** The suite `systemd`. */
export const USUAL: SystemdTests = {
  systemd: [
    ...MAIN_UNDER_SYSTEMD,
    'test/e2e/systemd/units.test.ts',
    'test/e2e/systemd/kubelet-unit.test.ts',
    'test/e2e/systemd/sockets.test.ts',
  ],
  installing: ['test/e2e/install/install.test.ts', 'test/e2e/install/executable.test.ts'],
};

/** The suite `long`: tests that wait for pauses of units, kubelet and rollouts. It takes as long as all other tests. */
export const LONG: SystemdTests = {
  systemd: ['test/e2e/systemd/bypass.test.ts', 'test/e2e/systemd/operator.test.ts'],
  installing: ['test/e2e/install/installer.test.ts', 'test/e2e/install/platforms.test.ts'],
};

/** The selection of `npm test -- --suite NAME` in place of the default one. */
export const suites = ['unit', 'speed', 'e2e', 'systemd', 'long'] as const;
export type Suite = (typeof suites)[number];

const INSTALLING = [...USUAL.installing, ...LONG.installing];
const WITH_SYSTEMD = [...USUAL.systemd, ...LONG.systemd];

/** All tests that need a node with systemd. */
export const ALL_UNDER_SYSTEMD: readonly string[] = [...WITH_SYSTEMD, ...INSTALLING];

/** The main release's topics, in groups of similar duration. Each has a node. Topics without a group share one. */
export const TOPICS: readonly (readonly string[])[] = [['foresight', 'kubernetes', 'volumes'], ['resize']];

/**
 * Tests for which the cgroup drivers differ. They run with the cgroupfs driver, with both drivers if they are named,
 * and with that of systemd in the suite `systemd-driver`.
 */
export const WITH_EITHER_DRIVER = [
  'test/e2e/foresight/foresight.test.ts',
  'test/e2e/foresight/foresight-volumes.test.ts',
  'test/e2e/foresight/hold.test.ts',
];

/** Unit tests that need the executable. */
const OF_THE_EXECUTABLE = ['test/tools/packaging/executable.test.ts'];

/** Test files that other suites of `npm run nightly` run, and the arguments of a run of few of them. */
export const OTHER_SUITES: readonly { readonly files: RegExp; readonly run: string }[] = [
  { files: /^test\/matrix\/matrix\.test\.ts$/, run: 'matrix -- --containerd 2.1 --runtime runc' },
  { files: /^test\/crash\/crash\.test\.ts$/, run: 'crash -- --containerd 2.1' },
  { files: /^test\/chaos\/chaos\.test\.ts$/, run: 'chaos -- --rounds 20' },
  { files: /^test\/soak\/soak\.test\.ts$/, run: 'soak' },
  { files: /^test\/blocking\/blocking\.test\.ts$/, run: 'blocking' },
  { files: /^test\/stock-kernel\/[^/]+\.test\.ts$/, run: 'stock-kernel' },
  { files: /^test\/real-kubelet\/[^/]+\.test\.ts$/, run: 'kubelet -- --containerd 2.1' },
];

/** An invalid command line. The message says why. */
export class SelectionError extends Error {
  override readonly name = 'SelectionError';
}

export interface Arguments {
  readonly files: readonly string[];
  readonly containerd: readonly ContainerdRelease[] | undefined;
}

/** Splits files from releases. --containerd takes later files too: `--containerd 2.1 test/e2e/x.test.ts`. */
export function parseArguments(files: readonly string[], containerd: readonly string[] | undefined): Arguments {
  if (containerd === undefined) return { files, containerd };
  const isRelease = (word: string): word is ContainerdRelease => containerdReleases.some((release) => release === word);
  const isFile = (word: string): boolean => word.includes('/') || word.endsWith('.ts');
  const releases = containerd.filter(isRelease);
  const wrong = containerd.find((word) => !isRelease(word) && !isFile(word));
  if (wrong !== undefined || releases.length === 0)
    throw new SelectionError(
      `invalid --containerd ${JSON.stringify(wrong ?? containerd[0])}: expected one of ${containerdReleases.join(', ')}`,
    );
  return { files: [...files, ...containerd.filter((word) => !isRelease(word))], containerd: releases };
}

/** Test files by the place in which they run. */
export interface Selection {
  readonly unit: readonly string[];
  readonly speed: readonly string[];
  readonly plain: readonly string[];
  readonly systemd: readonly string[];
  readonly installing: readonly string[];
  readonly needsExecutable: boolean;
}

/** @throws SelectionError that names the file and says what to use instead */
export function selectFiles(words: readonly string[], root: string): Selection {
  const files = [...new Set(words.map((word) => checked(word, root)))];
  const isEndToEnd = (file: string): boolean => file.startsWith('test/e2e/');
  const isSpeed = (file: string): boolean => file.endsWith('.speed.test.ts');
  return {
    unit: files.filter((file) => !isEndToEnd(file) && !isSpeed(file)),
    speed: files.filter(isSpeed),
    plain: files.filter((file) => isEndToEnd(file) && !ALL_UNDER_SYSTEMD.includes(file)),
    systemd: files.filter((file) => [...WITH_SYSTEMD, ...WITH_EITHER_DRIVER].includes(file)),
    installing: files.filter((file) => INSTALLING.includes(file)),
    needsExecutable: files.some((file) => [...INSTALLING, ...OF_THE_EXECUTABLE].includes(file)),
  };
}

function checked(word: string, root: string): string {
  const file = relative(root, resolve(root, word));
  if (!existsSync(resolve(root, file))) throw new SelectionError(`${word} does not exist`);
  if (!file.startsWith('test/') || !file.endsWith('.test.ts'))
    throw new SelectionError(`${word} is not a test file: expected a path like test/e2e/resize/resize.test.ts`);
  const other = OTHER_SUITES.find(({ files }) => files.test(file));
  if (other !== undefined)
    throw new SelectionError(`${word} is not run by npm test: use npm run nightly -- --only ${other.run}`);
  return file;
}

/** Returns a literal pattern for vitest's --testNamePattern. Names of failures, `suite > test`, match too. */
export const titlePattern = (text: string): string =>
  text.replaceAll(/[.*+?^${}()|[\]\\/]/g, '\\$&').replaceAll(' > ', '(?: > | )');
