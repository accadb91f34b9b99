import { mkdtemp, readFile, rm } from 'node:fs/promises';
import { constants, tmpdir } from 'node:os';
import { join } from 'node:path';
import { Command, Option } from 'commander';
import { endingSignal, inPairs, type Outcome, progressOf, report, testsInNode } from '../runner/vitest-run.ts';
import { type ContainerdRelease, type Init, inits } from '../support/node/index.ts';
import type { ScenarioReport } from './campaign.ts';
import { crashTable, unmetPoints } from './campaign.ts';

interface Flags {
  readonly containerd: readonly ContainerdRelease[];
  readonly init: Init;
  readonly all?: true;
  readonly title: string;
}

interface Node {
  readonly release: ContainerdRelease;
  readonly init: Init;
  /** The share of the scenarios: `1/2`. */
  readonly share: string;
  /** Only scenarios with this text in their name. */
  readonly title: string;
}

const releases: readonly ContainerdRelease[] = ['1.7', '2.1'];
/** With systemd, each limit of a pod takes three processes more. */
const TIMEOUT_MS: Readonly<Record<Init, number>> = { plain: 50 * 60_000, systemd: 90 * 60_000 };
const say = progressOf('crash');

const program = new Command('crash')
  .description(
    'Kills the shim at each crash point of each resize scenario, starts it again and checks the pod, in a test node of each ' +
      'containerd. Ends with a line with the numbers of passed and failed points.',
  )
  .addOption(new Option('--containerd <release...>', 'containerd releases').choices(releases).default(releases))
  .addOption(
    new Option('--init <name>', 'systemd: nodes with systemd and its cgroup driver').choices(inits).default('plain'),
  )
  .option('--all', 'run all scenarios on each containerd; otherwise the releases share them')
  .option('--title <text>', 'only scenarios with this text in their name; the kinds of points are not counted then', '')
  .parse();

/** Exit codes: 0 all passed, 1 some failed, 130 ended by a signal. */
async function main({ containerd, init, all, title }: Flags): Promise<number> {
  const signal = endingSignal();
  const folder = await mkdtemp(join(tmpdir(), 'cri-resize-shim-crash-'));
  try {
    const share = (index: number): string => `${index + 1}/${containerd.length}`;
    const nodes = containerd.map(
      (release, index): Node => ({ release, init, share: all === true ? '' : share(index), title }),
    );
    const ended = await inPairs(nodes, (node) => inNode(node, join(folder, node.release), signal));
    const points = title === '' ? [coverage(ended.flatMap(([, scenarios]) => scenarios))] : [];
    const outcomes = [...ended.map(([outcome]) => outcome), ...points];
    return signal.aborted ? 128 + constants.signals.SIGINT : report('crash', outcomes, say);
  } finally {
    await rm(folder, { recursive: true, force: true });
  }
}

/** Returns the points that no node has tested: nodes may share the scenarios. */
function coverage(scenarios: readonly ScenarioReport[]): Outcome {
  const unmet = unmetPoints(scenarios);
  const failures = unmet.map((point) => ({ name: point, what: 'no scenario was killed there' }));
  return { what: 'kinds of points', passed: unmet.length === 0 ? 1 : 0, failures };
}

async function inNode(
  { release, init, share, title }: Node,
  outDir: string,
  signal: AbortSignal,
): Promise<[Outcome, readonly ScenarioReport[]]> {
  const what = `containerd ${release}${init === 'systemd' ? ' under systemd' : ''}`;
  const node = { containerd: release, runtime: 'runc', init, project: 'crash', timeoutMs: TIMEOUT_MS[init] } as const;
  const env = { CRASH_SCENARIOS: share, CRASH_TITLE: title };
  const tests = await testsInNode({ ...node, what, outDir, env, say, signal });
  const text = await readFile(join(outDir, 'crash.json'), 'utf8').catch(() => '[]');
  const scenarios = JSON.parse(text) as readonly ScenarioReport[];
  process.stdout.write(`${crashTable(what, scenarios)}\n`);
  const tried = scenarios.reduce(
    (all, { points, recoveries }) => all + Math.max(1, points.length + recoveries.length),
    0,
  );
  const failures = scenarios.flatMap(({ name, failures }) =>
    failures.map(({ point, what }) => ({ name: `${name}, at ${point}`, what })),
  );
  // Tests that failed outside of points, for example in their setup.
  const others = tests.failures.filter((failure) => !scenarios.some(({ name }) => failure.name.endsWith(`> ${name}`)));
  return [{ what, passed: Math.max(0, tried - failures.length), failures: [...failures, ...others] }, scenarios];
}

process.exitCode = await main(program.opts<Flags>());
