import { Command, InvalidArgumentError, Option } from 'commander';
import { version } from '../../core/index.ts';

export type Mode = 'install' | 'uninstall';

/** The flags that the DaemonSet sets. */
export interface Options {
  readonly mode: Mode;
  readonly nodeName: string;
  readonly config: string;
  readonly kubeletUnit?: string;
  readonly timeout?: string;
  readonly repairDrift: boolean;
  readonly shimCredentials: string;
  readonly metricsPort: number;
}

function port(text: string): number {
  if (/^\d+$/.test(text) && Number(text) <= 65_535) return Number(text);
  throw new InvalidArgumentError('expected a number from 0 to 65535.');
}

/** Parses the arguments after the program name. Exits the process if they are invalid or ask for help. */
export function readOptions(argv: readonly string[]): Options {
  return new Command('cri-resize-shim-installer')
    .description(
      'Brings the node of this pod to its mode, with resizectl, and reports whether it is there. Used by the DaemonSets in deploy/; see docs/kubernetes.md.',
    )
    .version(version)
    .helpOption('-h, --help', 'Print this help and exit.')
    .allowExcessArguments(false)
    .addOption(
      new Option('--mode <MODE>', 'Whether the node is to have the shim.')
        .choices(['install', 'uninstall'])
        .default('install')
        .env('INSTALLER_MODE'),
    )
    .requiredOption('--node-name <NAME>', 'Name of this node.')
    .option('--config <FILE>', 'Configuration of the shim; if empty, each node keeps its own.', '')
    .option('--kubelet-unit <UNIT>', 'As for resizectl.')
    .option('--timeout <DURATION>', 'As for resizectl.')
    .option(
      '--repair-drift',
      'Install the shim again if kubelet no longer uses it, after an upgrade of its node for example.',
      false,
    )
    .option(
      '--shim-credentials <FOLDER>',
      'Folder with token and ca.crt for the kubeconfig of the shim; empty: none.',
      '',
    )
    .option('--metrics-port <PORT>', "Serve the metrics of this node's shim at this port; 0: do not.", port, 0)
    .parse(argv, { from: 'user' })
    .opts<Options>();
}
