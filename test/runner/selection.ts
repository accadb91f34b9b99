import { existsSync } from 'node:fs';
import { relative, resolve } from 'node:path';
import { type ContainerdRelease, containerdReleases } from '../support/node/index.ts';

/** Selects which tests `npm test` runs, and where, by the lists below and the command line. */

/** Tests that need a node with systemd as its first process. All other end-to-end tests run without systemd. */
export const UNDER_SYSTEMD = ['test/e2e/systemd/systemd.test.ts', 'test/e2e/systemd/units.test.ts'];

/** Tests that need systemd and mostly wait for the pauses of units, so they run in a separate node. */
export const BYPASS = ['test/e2e/systemd/bypass.test.ts', 'test/e2e/systemd/operator.test.ts'];

/** Tests that need systemd and the executable. They mostly wait for units and kubelet, so they run in a separate node. */
export const INSTALLING = [
  'test/e2e/install/endpoint.test.ts',
  'test/e2e/install/install.test.ts',
  'test/e2e/install/installer.test.ts',
  'test/e2e/install/executable.test.ts',
];

/** Topics whose tests take half of the time of the main release. They run in one node, and the other topics in another. */
export const SEPARATE_TOPICS = ['foresight', 'kubernetes', 'volumes'];

/**
 * Tests for which the cgroup drivers differ. `npm test` runs them with cgroupfs, and with both drivers if they are named. `.ci/run` also
 * runs them with that of systemd.
 */
export const WITH_EITHER_DRIVER = [
  'test/e2e/foresight/foresight.test.ts',
  'test/e2e/foresight/foresight-off.test.ts',
  'test/e2e/foresight/foresight-volumes.test.ts',
  'test/e2e/foresight/hold.test.ts',
];

/** Unit tests that need the executable. */
const OF_THE_EXECUTABLE = ['test/tools/packaging/executable.test.ts'];

/** Test files that other commands run. */
export const OTHER_COMMANDS: readonly { readonly files: RegExp; readonly command: string }[] = [
  { files: /^test\/matrix\/matrix\.test\.ts$/, command: 'npm run matrix -- --containerd 2.1 --runtime runc' },
  { files: /^test\/crash\/crash\.test\.ts$/, command: 'npm run crash -- --containerd 2.1' },
  { files: /^test\/chaos\/chaos\.test\.ts$/, command: 'npm run chaos -- --rounds 20' },
  { files: /^test\/soak\/soak\.test\.ts$/, command: 'npm run soak' },
  { files: /^test\/blocking\/blocking\.test\.ts$/, command: 'npm run blocking' },
  { files: /^test\/stock-kernel\/[^/]+\.test\.ts$/, command: 'npm run stock-kernel' },
  { files: /^test\/real-kubelet\/[^/]+\.test\.ts$/, command: 'npm run kubelet -- --containerd 2.1' },
];

/** An invalid command line. The message says why. */
export class SelectionError extends Error {
  override readonly name = 'SelectionError';
}

export interface Arguments {
  readonly files: readonly string[];
  readonly containerd: readonly ContainerdRelease[] | undefined;
}

/**
 * Splits files from releases. The option --containerd takes every word after it, files included: `--containerd 2.1 test/e2e/x.test.ts`.
 */
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
  readonly plain: readonly string[];
  readonly systemd: readonly string[];
  readonly installing: readonly string[];
  readonly needsExecutable: boolean;
}

/** @throws SelectionError that names the file and says what to use instead */
export function selectFiles(words: readonly string[], root: string): Selection {
  const files = [...new Set(words.map((word) => checked(word, root)))];
  const isEndToEnd = (file: string): boolean => file.startsWith('test/e2e/');
  const needSystemd = [...UNDER_SYSTEMD, ...BYPASS, ...INSTALLING];
  return {
    unit: files.filter((file) => !isEndToEnd(file)),
    plain: files.filter((file) => isEndToEnd(file) && !needSystemd.includes(file)),
    systemd: files.filter((file) => [...UNDER_SYSTEMD, ...BYPASS, ...WITH_EITHER_DRIVER].includes(file)),
    installing: files.filter((file) => INSTALLING.includes(file)),
    needsExecutable: files.some((file) => [...INSTALLING, ...OF_THE_EXECUTABLE].includes(file)),
  };
}

function checked(word: string, root: string): string {
  const file = relative(root, resolve(root, word));
  if (!existsSync(resolve(root, file))) throw new SelectionError(`${word} does not exist`);
  if (!file.startsWith('test/') || !file.endsWith('.test.ts'))
    throw new SelectionError(`${word} is not a test file: expected a path like test/e2e/resize/resize.test.ts`);
  const other = OTHER_COMMANDS.find(({ files }) => files.test(file));
  if (other !== undefined) throw new SelectionError(`${word} is not run by npm test: use ${other.command}`);
  return file;
}

/** Returns a pattern for vitest's --testNamePattern that matches a text literally. The names of failures, `suite > test`, match too. */
export const titlePattern = (text: string): string =>
  text.replaceAll(/[.*+?^${}()|[\]\\/]/g, '\\$&').replaceAll(' > ', '(?: > | )');
