import { join } from 'node:path';
import { kubernetesReleases } from '../real-kubelet/programs.ts';
import { markdownTable } from '../runner/results-reporter.ts';
import { SelectionError, WITH_EITHER_DRIVER } from '../runner/selection.ts';
import { containerdReleases } from '../support/node/index.ts';
import { builtReleases } from '../support/node/parts/go-module.ts';
import type { StageResult } from './state.ts';

/** The suites and stages of `npm run nightly`. A stage is a run of a suite with certain flags. */

const built = (name: string): string => join('dist/tools', `${name}.js`);
const ofTests = (suite: string): readonly string[] => [built('test'), '--suite', suite];

/** The suites by name: the program of each, relative to the checkout, with the arguments that select the suite. */
export const suites = {
  speed: ofTests('speed'),
  e2e: ofTests('e2e'),
  systemd: ofTests('systemd'),
  long: ofTests('long'),
  'systemd-driver': [built('test'), '--init', 'systemd', ...WITH_EITHER_DRIVER],
  'node-24': ['tools/node-24.mjs'],
  versions: [built('versions')],
  matrix: [built('matrix')],
  kubelet: [built('kubelet')],
  'kep-6030': [built('kubelet'), '--only', 'kep-6030'],
  'stock-kernel': [built('stock-kernel')],
  vpa: [built('vpa')],
  'k8s-e2e': [built('k8s-e2e')],
  'cri-integration': [built('cri-integration')],
  conformance: [built('conformance')],
  crash: [built('crash')],
  chaos: [built('chaos')],
  soak: [built('soak')],
  fuzz: [built('fuzz')],
  interop: [built('interop')],
  limits: [built('limits')],
  blocking: [built('blocking')],
  mutation: ['tools/mutation.mjs'],
  // The flags of the image builder follow.
  image: [built('image'), '--'],
  bench: [built('bench')],
  // These suites are not stages. Many machines use a registry without keys, and a recording is data for the bench.
  signatures: [built('signatures')],
  'record-load': [built('record-load')],
} as const satisfies Readonly<Record<string, readonly string[]>>;
export type Suite = keyof typeof suites;

export interface Stage {
  /** Unique. */
  readonly name: string;
  readonly suite: Suite;
  readonly flags?: readonly string[];
  /** Time limit: about four times what the stage takes on two idle processors. */
  readonly minutes: number;
  /** Whether it builds programs from Go modules, so that it is left out without a Go toolchain. */
  readonly needsGo?: true;
}

/** An old containerd, and the one with long-term support. */
const KUBELET_ON = ['1.7', '2.3'] as const;

/** The shortest stages and those that are most likely to fail come first. */
export const stages: readonly Stage[] = [
  { name: 'speed', suite: 'speed', minutes: 20 },
  { name: 'e2e', suite: 'e2e', minutes: 90 },
  { name: 'systemd', suite: 'systemd', minutes: 60 },
  { name: 'long', suite: 'long', minutes: 90 },
  { name: 'systemd-driver', suite: 'systemd-driver', minutes: 60 },
  { name: 'node-24', suite: 'node-24', minutes: 60 },
  ...containerdReleases.map(
    (release): Stage => ({
      name: `versions-${release}`,
      suite: 'versions',
      flags: ['--containerd', release],
      minutes: 120,
      ...(builtReleases.some((other) => other === release) && { needsGo: true }),
    }),
  ),
  { name: 'matrix-systemd', suite: 'matrix', flags: ['--init', 'systemd'], minutes: 60 },
  ...kubernetesReleases.flatMap((kubelet) =>
    KUBELET_ON.map(
      (containerd): Stage => ({
        name: `kubelet-${kubelet}-${containerd}`,
        suite: 'kubelet',
        flags: ['--kubelet', kubelet, '--containerd', containerd, '--only', 'table', 'pods'],
        minutes: 120,
        needsGo: true,
      }),
    ),
  ),
  // The cgroup controllers that User Mode Linux does not have: cpuset and hugetlb.
  { name: 'stock-kernel', suite: 'stock-kernel', minutes: 240 },
  {
    name: 'kubelet-static-cpu',
    suite: 'kubelet',
    flags: ['--only', 'table', '--kernel', 'debian'],
    minutes: 180,
    needsGo: true,
  },
  {
    name: 'admission',
    suite: 'kubelet',
    flags: ['--only', 'admission'],
    minutes: 120,
    needsGo: true,
  },
  {
    name: 'admission-static-cpu',
    suite: 'kubelet',
    flags: ['--only', 'admission', '--kernel', 'debian'],
    minutes: 120,
    needsGo: true,
  },
  { name: 'kep-6030', suite: 'kep-6030', minutes: 120, needsGo: true },
  {
    name: 'kubelet-systemd',
    suite: 'kubelet',
    flags: ['--only', 'installer', 'bypass', 'operator'],
    minutes: 120,
    needsGo: true,
  },
  { name: 'vpa', suite: 'vpa', minutes: 180, needsGo: true },
  { name: 'k8s-e2e', suite: 'k8s-e2e', minutes: 600, needsGo: true },
  { name: 'cri-integration', suite: 'cri-integration', minutes: 240, needsGo: true },
  { name: 'crash', suite: 'crash', minutes: 120 },
  { name: 'crash-systemd', suite: 'crash', flags: ['--init', 'systemd'], minutes: 180 },
  { name: 'chaos', suite: 'chaos', flags: ['--rounds', '200'], minutes: 300 },
  { name: 'soak', suite: 'soak', flags: ['--resizes', '100000', '--pods', '1000'], minutes: 300 },
  { name: 'fuzz', suite: 'fuzz', flags: ['--inputs', '10000000'], minutes: 300 },
  { name: 'interop', suite: 'interop', minutes: 60, needsGo: true },
  { name: 'limits', suite: 'limits', minutes: 60 },
  { name: 'blocking', suite: 'blocking', minutes: 60 },
  { name: 'mutation', suite: 'mutation', minutes: 480 },
  { name: 'image', suite: 'image', minutes: 60 },
  { name: 'bench', suite: 'bench', flags: ['--check'], minutes: 120 },
];

const among = (names: readonly string[]): readonly Stage[] => stages.filter(({ name }) => names.includes(name));

/** The stages of `--quick`, which take about an hour on two processors. */
export const quickStages: readonly Stage[] = [
  ...among(['speed', 'e2e', 'systemd']),
  { name: 'kubelet-table', suite: 'kubelet', flags: ['--only', 'table'], minutes: 60, needsGo: true },
  { name: 'fuzz-million', suite: 'fuzz', minutes: 30 },
  { name: 'conformance', suite: 'conformance', flags: ['--containerd', '2.1'], minutes: 60, needsGo: true },
  ...among(['crash']),
];

/** Returns the stages with one of these names, and those of suites with one. Throws SelectionError for others. */
export function stagesOf(names: readonly string[]): readonly Stage[] {
  const known = [...new Set([...stages, ...quickStages])];
  const wrong = names.find((name) => !known.some((stage) => stage.name === name || stage.suite === name));
  if (isSuite(wrong)) throw new SelectionError(`the suite ${wrong} is no stage: name it alone after --only`);
  if (wrong !== undefined) {
    const expected = [...new Set([...known.map(({ name }) => name), ...Object.keys(suites)])];
    throw new SelectionError(`no stage or suite ${JSON.stringify(wrong)}: expected ${expected.join(', ')}`);
  }
  const isChosen = (stage: Stage): boolean =>
    names.includes(stage.name) || (stages.includes(stage) && names.includes(stage.suite));
  return known.filter(isChosen);
}

/** Returns the longest time limit of a suite's stages, for a run with other flags, in minutes; 60 without a stage. */
export const minutesOf = (suite: Suite): number =>
  Math.max(60, ...[...stages, ...quickStages].filter((stage) => stage.suite === suite).map(({ minutes }) => minutes));

/** Arguments of Node that run a suite with these flags. */
export const commandOf = (suite: Suite, flags: readonly string[] = []): readonly string[] => [
  ...suites[suite],
  ...flags,
];

/** Whether a suite runs only if it is named on the command line. */
export const isOnRequest = (suite: Suite): boolean =>
  ![...stages, ...quickStages].some((stage) => stage.suite === suite);

export const isSuite = (name: string | undefined): name is Suite => name !== undefined && Object.hasOwn(suites, name);

/** Returns the last run of these stages as a Markdown table: stage, versions, date and result. */
export function nightlyTable(
  stages: readonly Stage[],
  results: Readonly<Record<string, StageResult>>,
  hasGo: boolean,
): string {
  const rows = stages.map(({ name, minutes, needsGo }) => {
    const result = results[name];
    const what = `\`npm run nightly -- --only ${name}\``;
    if (result === undefined) return [what, '', '', needsGo && !hasGo ? 'not run: needs Go' : 'not run', ''];
    const { passed, failed, seconds, date, versions = '', isLate } = result;
    const counts = failed === 0 ? `${passed} passed` : `${passed} passed, ${failed} FAILED`;
    const outcome = isLate === true ? `${counts}, ENDED after ${minutes} min` : counts;
    return [what, versions, date, outcome, `${Math.ceil(seconds / 60)} min`];
  });
  return markdownTable([['stage', 'versions', 'date', 'result', 'time'], ...rows]);
}
