import { mkdir, readFile, rm } from 'node:fs/promises';
import { dirname, join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { LineFollower } from '../../runner/line-follower.ts';
import type { Failure } from '../../runner/results-reporter.ts';
import type { Outcome } from '../../runner/vitest-run.ts';
import { type ContainerdRelease, type KernelName, runInNode } from '../../support/node/index.ts';
import { type AdmissionConfiguration, admissionFaults } from '../admission/verdicts.ts';
import { type KubernetesRelease, kubeletVersion } from '../programs.ts';
import { faultsOf, isSince, tableText, volumesText } from './compare.ts';
import { configurationsOf, type Table } from './configurations.ts';
import type { Observation, Row, Side } from './row.ts';
import { alignedTo } from './sizes.ts';

/** The table of pods: two test nodes run the same rows at the same time, one without and one with the shim. */

export interface TableRun {
  readonly kubernetes: KubernetesRelease;
  readonly containerd: ContainerdRelease;
  readonly env: Readonly<Record<string, string>>;
  /** Destination of the logs and observations of both nodes. */
  readonly folder: string;
  /** Only configurations for this kernel. */
  readonly kernel: KernelName;
  /** Only rows with this text in `CONFIGURATION: TITLE`. */
  readonly title: string;
  readonly timeoutMs: number;
  readonly say: (text: string) => void;
  readonly signal: AbortSignal;
}

type Observations = Readonly<Record<string, Readonly<Record<string, Observation>>>>;

/** Returns an outcome for each configuration. Each row is a test. */
export async function compareSides(run: TableRun): Promise<Outcome[]> {
  const { kubernetes, containerd, kernel } = run;
  // The caller's report() handles the case without rows. Nodes take minutes to boot.
  if (!configurationsOf(kubernetes, kernel).some(({ name, rows }) => rows.some((row) => isChosen(run, name, row))))
    return [];
  const sides = async (): Promise<readonly Observations[]> =>
    kernel === 'uml'
      ? Promise.all([observeSide(run, 'direct', 'pods'), observeSide(run, 'shim', 'pods')])
      : // A machine with two processors has room for one such node.
        [await observeSide(run, 'direct', 'pods'), await observeSide(run, 'shim', 'pods')];
  const [direct = {}, shim = {}] = await sides();
  return configurationsOf(kubernetes, kernel).flatMap(({ name, rows }) => {
    const chosen = rows.filter((row) => isChosen(run, name, row));
    if (chosen.length === 0) return [];
    const results = chosen.map((row) => {
      const [one, other] = [direct[name]?.[row.title] ?? lost, shim[name]?.[row.title] ?? lost];
      const isKnown = isSince(kubernetes, row.since);
      return { row, isKnown, direct: one, shim: other, faults: faultsOf(row, one, other, isKnown) };
    });
    process.stdout.write(tableText(`${kubeletVersion(kubernetes)} ${name}, containerd ${containerd}`, results));
    const failures: Failure[] = results
      .filter(({ faults }) => faults.length > 0)
      .map(({ row, faults }) => ({ name: row.title, what: faults.join('\n') }));
    return [
      {
        what: `kubelet ${kubernetes} ${name}, containerd ${containerd}`,
        passed: results.length - failures.length,
        failures,
      },
    ];
  });
}

const isChosen = (run: TableRun, name: string, { title }: { readonly title: string }): boolean =>
  `${name}: ${title}`.includes(run.title);

/**
 * Requests each small resize of the API server and kubelet, and of ResizePod, on one node with the shim. Returns an
 * outcome for each configuration, and prints the cases that differ from what they state.
 */
export async function compareVerdicts(run: TableRun): Promise<Outcome[]> {
  const { kubernetes, containerd, kernel } = run;
  const chosen = (configurationsOf(kubernetes, kernel, 'admission') as readonly AdmissionConfiguration[])
    .map(({ name, rows }) => ({ name, rows: rows.filter((row) => isChosen(run, name, row)) }))
    .filter(({ rows }) => rows.length > 0);
  if (chosen.length === 0) return [];
  const seen = await observeSide(run, 'shim', 'admission');
  return chosen.map(({ name, rows }) => {
    const failures = rows
      .map((row) => ({ name: row.title, what: admissionFaults(row, seen[name]?.[row.title] ?? lost).join('\n') }))
      .filter(({ what }) => what !== '');
    return {
      what: `kubelet ${kubernetes} ${name}, containerd ${containerd}`,
      passed: rows.length - failures.length,
      failures,
    };
  });
}

/** The runs of the table of volumes: a kubelet that resizes volumes, and kubelets that do not. */
export interface VolumeRuns {
  readonly gated: TableRun;
  /** Through the shim, without the feature gate. */
  readonly others: readonly TableRun[];
}

/** Returns an outcome for each kubelet with the shim, and the table of the documentation. */
export async function compareVolumes({ gated, others }: VolumeRuns): Promise<{ outcomes: Outcome[]; text: string }> {
  const direct = observeSide(gated, 'direct', 'volumes with gate');
  const [seen, owned] = await Promise.all([direct, observeSide(gated, 'shim', 'volumes with gate')]);
  const through = await Promise.all(others.map((run) => observeSide(run, 'shim', 'volumes')));
  const configurations = configurationsOf(gated.kubernetes, 'uml', 'volumes');
  const rows = configurations.flatMap(({ name, rows }) =>
    rows.filter((row) => isChosen(gated, name, row)).map((row) => ({ name, row })),
  );
  const outcome = (what: string, side: Observations, rowFor: (row: Row) => Row): Outcome => {
    const failures = rows
      .map(({ name, row }) => {
        const faults = volumeFaults(rowFor(row), seen[name]?.[row.title] ?? lost, side[name]?.[row.title] ?? lost);
        return { name: row.title, what: faults.join('\n') };
      })
      .filter((failure) => failure.what !== '');
    return { what, passed: rows.length - failures.length, failures };
  };
  const outcomes = [
    outcome(`kubelet ${kubeletVersion(gated.kubernetes)} with the feature gate, through the shim`, owned, withGate),
    ...others.map(({ kubernetes }, index) =>
      outcome(`kubelet ${kubeletVersion(kubernetes)} through the shim`, through[index] ?? {}, (row) => row),
    ),
  ];
  const shown = rows.map(({ name, row }) => ({
    ...{ row, direct: seen[name]?.[row.title] ?? lost, shim: through[0]?.[name]?.[row.title] ?? lost },
  }));
  return { outcomes, text: volumesText(shown) };
}

const volumeFaults = (row: Row, direct: Observation, shim: Observation): readonly string[] =>
  faultsOf(row, aligned(row, 'direct', direct), aligned(row, 'shim', shim));

/** Returns the row for a kubelet that resizes volumes, through the shim: it has the values of kubelet alone. */
function withGate(row: Row): Row {
  const { expected, wanted = [] } = row;
  const own = wanted.flatMap(({ isAlways, field, direct }) =>
    isAlways || typeof direct !== 'string' ? [] : [[field, direct] as const],
  );
  const values = { ...expected, ...(Object.fromEntries(own) as Readonly<Record<string, string>>) };
  return { ...row, expected: values, wanted: wanted.filter(({ isAlways }) => isAlways) };
}

/** Returns the observation of a side. Changes of unknown order are as the row states them for this side. */
const aligned = ({ expected, wanted = [] }: Row, side: Side, seen: Observation): Observation =>
  Object.fromEntries(
    Object.entries(seen).map(([field, value]) => {
      const stated = [wanted.find((one) => one.field === field)?.[side] ?? expected[field]].flat();
      return [field, field.endsWith(': order') ? alignedTo(stated.at(-1) ?? '', value) : value];
    }),
  );

const lost: Observation = { error: 'the node has left no observation' };

async function observeSide(run: TableRun, side: Side, table: Table): Promise<Observations> {
  const { kubernetes, containerd, kernel, env, title, timeoutMs, say, signal } = run;
  const outDir = join(run.folder, side);
  const what = side === 'direct' ? 'without the shim' : 'through the shim';
  // Files of an earlier run must not pass for a result of this one.
  await rm(outDir, { recursive: true, force: true });
  await mkdir(outDir, { recursive: true });
  const follower = new LineFollower(join(outDir, 'progress'), (line) => say(`${what}: ${line}`));
  const program = join(dirname(fileURLToPath(import.meta.url)), 'kubelet-inside.js');
  say(`${what}: booting a node`);
  try {
    await runInNode({
      containerd,
      runtime: 'runc',
      kernel,
      command: [process.execPath, program, side, kubernetes, table, title],
      env,
      outDir,
      progress: say,
      timeoutMs,
      signal,
    });
  } catch (error) {
    say(`${what}: ${error instanceof Error ? error.message : String(error)}`);
  } finally {
    follower.close();
  }
  const text = await readFile(join(outDir, 'observations.json'), 'utf8').catch(() => '{}');
  return JSON.parse(text) as Observations;
}
