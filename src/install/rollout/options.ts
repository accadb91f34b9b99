import { Command, InvalidArgumentError, Option } from 'commander';
import { parseDuration, version } from '../../config/index.ts';
import { IN_CLUSTER } from '../../kubernetes/client/index.ts';

/** What the DaemonSet says to its pods. */
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
}

export interface Label {
  readonly key: string;
  readonly value: string;
}

function duration(text: string): number {
  const ms = parseDuration(text);
  if (ms === undefined || ms === 0) throw new InvalidArgumentError('want 30s or 2m.');
  return ms;
}

const durationText = (text: string): string => (duration(text), text);

function label(text: string): Label {
  const [, key, value] = /^([^=]+)=(.*)$/.exec(text) ?? [];
  if (key === undefined || value === undefined) throw new InvalidArgumentError('want KEY=VALUE.');
  return { key, value };
}

/** Reads the arguments after the program's name. Ends the process when they make no sense, or ask for help. */
export function readOptions(argv: readonly string[]): Options {
  const program = new Command('cri-resize-shim-installer')
    .description(
      'Installs the shim on the node that its pod runs on, one node of the cluster at a time, and takes it off when the label has gone. ' +
        'For the DaemonSet in deploy/; docs/kubernetes.md tells of it.',
    )
    .version(version)
    .helpOption('-h, --help', 'print this and exit')
    .allowExcessArguments(false)
    .requiredOption('--node-name <NAME>', 'the node that this runs on')
    .requiredOption('--namespace <NAME>', 'where the Lease is that the nodes take turns by')
    .requiredOption('--label <KEY=VALUE>', 'what a node is labelled with that is to have the shim', label)
    .option('--program <FOLDER>', 'the program in the image', '/usr/local/lib/cri-resize-shim')
    .option('--staging <FOLDER>', 'a folder of the host, at the same path here', '/var/lib/cri-resize-shim-installer')
    .option('--config <FILE>', "the shim's configuration; one that says nothing leaves the node's own", '')
    .option('--kubelet-unit <UNIT>', "systemd's unit of kubelet", 'kubelet.service')
    .option('--timeout <DURATION>', 'for the shim to be ready, and for kubelet to come back', durationText, '2m')
    .addOption(
      new Option('--ready-timeout <DURATION>', 'for the node to be Ready again')
        .argParser(duration)
        .default(300_000, '5m'),
    )
    .option('--ready-file <FILE>', 'is there while the shim is installed', '/run/cri-resize-shim-installer/ready')
    .option('--lease <NAME>', 'the name of the Lease', 'cri-resize-shim-installer')
    .addOption(
      new Option('--lease-duration <DURATION>', 'after which a node that gives no sign has lost its turn')
        .argParser(duration)
        .default(300_000, '5m'),
    )
    .addOption(
      new Option('--grace <DURATION>', 'what the pod has for its end (terminationGracePeriodSeconds)')
        .argParser(duration)
        .default(30_000, '30s'),
    )
    .option('--kubeconfig <FILE>', 'how to reach the Kubernetes API', IN_CLUSTER);
  program.parse(argv, { from: 'user' });
  return program.opts<Options>();
}
