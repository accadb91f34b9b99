import { Command } from 'commander';
import { patientClock } from '../context.ts';
import { type Label, count, label } from '../options.ts';
import { restore } from './restore.ts';
import { IN_CLUSTER, apiOf, openConnection } from '../../../kubernetes/client/index.ts';

interface RestoreOptions {
  readonly namespace: string;
  readonly label: Label;
  readonly portion: number;
  readonly kubeconfig: string;
}

/** The command `restore` of the installer, which the chart runs before it is deleted. Returns the exit code. */
export async function restoreNodes(argv: readonly string[], say: (line: string) => void): Promise<number> {
  const program = new Command('cri-resize-shim-installer restore')
    .description('Removes the label from all nodes and waits until the shim is uninstalled on them.')
    .helpOption('-h, --help', 'Print this help and exit.')
    .allowExcessArguments(false)
    .requiredOption('--namespace <NAME>', "Namespace of the installer's pods.")
    .requiredOption('--label <KEY=VALUE>', 'Label of the nodes that have the shim.', label)
    .option('--portion <COUNT>', 'From how many nodes the label is removed at once.', count(1, 5000), 20)
    .option('--kubeconfig <FILE>', 'Kubeconfig for the Kubernetes API.', IN_CLUSTER)
    .parse(argv, { from: 'user' });
  const { kubeconfig, ...options } = program.opts<RestoreOptions>();
  const api = apiOf(() => openConnection(kubeconfig));
  const stop = new AbortController();
  for (const signal of ['SIGTERM', 'SIGINT'] as const)
    process.on(signal, () => stop.abort(new Error(`ended by ${signal}`)));
  try {
    return await restore({ ...options, api, say, clock: patientClock, random: () => Math.random() }, stop.signal);
  } catch (error) {
    if (!stop.signal.aborted) throw error;
    say('ended before the shim was uninstalled on all nodes; their pods continue with it');
    return 1;
  }
}
