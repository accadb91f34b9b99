import { Command, InvalidArgumentError, Option } from 'commander';
import { parseDuration, version } from '../../config/index.ts';
import { IN_CLUSTER } from '../../kubernetes/client/index.ts';

/** The flags that the DaemonSet sets. */
export interface Options {
  readonly nodeName: string;
  readonly namespace: string;
  readonly label: Label;
  readonly program: string;
  readonly staging: string;
  readonly config: string;
  readonly kubeletUnit: string;
  readonly timeout: string;
  readonly readyFile: string;
  readonly lease: string;
  readonly leaseDuration: number;
  readonly grace: number;
  readonly readyTimeout: number;
  readonly kubeconfig: string;
  readonly repairDrift: boolean;
}

export interface Label {
  readonly key: string;
  readonly value: string;
}

function duration(text: string): number {
  const ms = parseDuration(text);
  if (ms === undefined || ms === 0) throw new InvalidArgumentError('expected a duration such as 30s or 2m.');
  return ms;
}

const durationText = (text: string): string => (duration(text), text);

const durationOption = (flags: string, description: string, ms: number, shown: string): Option =>
  new Option(flags, description).argParser(duration).default(ms, shown);

function label(text: string): Label {
  const [, key, value] = /^([^=]+)=(.*)$/.exec(text) ?? [];
  if (key === undefined || value === undefined) throw new InvalidArgumentError('expected KEY=VALUE.');
  return { key, value };
}

const STAGING = '/var/lib/cri-resize-shim-installer';
const REPAIR_DRIFT = 'Install the shim again if kubelet no longer uses it, after an upgrade of its node for example.';

/** The program without its options. */
const createProgram = (): Command =>
  new Command('cri-resize-shim-installer')
    .description(
      'Installs the shim on the node of this pod, one node of the cluster at a time, and uninstalls it when the label is removed. ' +
        'Used by the DaemonSet in deploy/; see docs/kubernetes.md.',
    )
    .version(version)
    .helpOption('-h, --help', 'Print this help and exit.')
    .allowExcessArguments(false);

/** Parses the arguments after the program name. Exits the process if they are invalid or ask for help. */
export function readOptions(argv: readonly string[]): Options {
  const program = createProgram()
    .requiredOption('--node-name <NAME>', 'Name of this node.')
    .requiredOption('--namespace <NAME>', 'Namespace of the Lease that makes the nodes take turns.')
    .requiredOption('--label <KEY=VALUE>', 'Label of the nodes that get the shim.', label)
    .option('--program <FOLDER>', 'The program in the image.', '/usr/local/lib/cri-resize-shim')
    .option('--staging <FOLDER>', 'A folder of the host, mounted at the same path.', STAGING)
    .option('--config <FILE>', 'Configuration of the shim; if empty, each node keeps its own.', '')
    .option('--kubelet-unit <UNIT>', 'The systemd unit of kubelet.', 'kubelet.service')
    .option(
      '--timeout <DURATION>',
      'Maximum time for the shim to become ready, and for kubelet to come back.',
      durationText,
      '2m',
    )
    .addOption(
      durationOption('--ready-timeout <DURATION>', 'Maximum time for the node to become Ready again.', 300_000, '5m'),
    )
    .option(
      '--ready-file <FILE>',
      'This file exists while the shim is installed.',
      '/run/cri-resize-shim-installer/ready',
    )
    .option('--lease <NAME>', 'Name of the Lease.', 'cri-resize-shim-installer')
    .addOption(
      durationOption(
        '--lease-duration <DURATION>',
        'A node that does not renew the Lease for this time loses its turn.',
        300_000,
        '5m',
      ),
    )
    .addOption(
      durationOption('--grace <DURATION>', 'Grace period of the pod (terminationGracePeriodSeconds).', 30_000, '30s'),
    )
    .option('--repair-drift', REPAIR_DRIFT, false)
    .option('--kubeconfig <FILE>', 'Kubeconfig for the Kubernetes API.', IN_CLUSTER);
  program.parse(argv, { from: 'user' });
  return program.opts<Options>();
}
