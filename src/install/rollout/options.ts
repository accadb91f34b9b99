import { Command, InvalidArgumentError, Option } from 'commander';
import { parseDuration, version } from '../../core/index.ts';
import { IN_CLUSTER } from '../../kubernetes/index.ts';

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
  readonly parallel: number;
  readonly canaries: number;
  readonly canaryLabel: Label;
  readonly soak: number;
  readonly spread: number;
  readonly revision: string;
  readonly shimCredentials: string;
  readonly metricsPort: number;
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

function durationOrZero(text: string): number {
  return text === '0' || text === '0s' ? 0 : duration(text);
}

const durationText = (text: string): string => (duration(text), text);

const durationOption = (flags: string, description: string, ms: number, shown: string): Option =>
  new Option(flags, description).argParser(duration).default(ms, shown);

/** Parses KEY=VALUE. */
export function label(text: string): Label {
  const [, key, value] = /^([^=]+)=(.*)$/.exec(text) ?? [];
  if (key === undefined || value === undefined) throw new InvalidArgumentError('expected KEY=VALUE.');
  return { key, value };
}

/** Maximum number of nodes in a record of the Lease: annotations may take 256 KiB together. */
const MOST_PARALLEL = 200;
const MOST_CANARIES = 20;

/** Parses a whole number within bounds. */
export const count =
  (least: number, most: number) =>
  (text: string): number => {
    const value = Number(text);
    if (/^\d+$/.test(text) && value >= least && value <= most) return value;
    throw new InvalidArgumentError(`expected a number from ${least} to ${most}.`);
  };

const STAGING = '/var/lib/cri-resize-shim-installer';
const REPAIR_DRIFT = 'Install the shim again if kubelet no longer uses it, after an upgrade of its node for example.';

/** The program without its options. */
const createProgram = (): Command =>
  new Command('cri-resize-shim-installer')
    .description(
      'Installs the shim on the node of this pod, in turns with the other nodes of the cluster, and uninstalls it when the label is removed. ' +
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
  withWaves(program);
  withProvided(program);
  program.parse(argv, { from: 'user' });
  const options = program.opts<Options>();
  if (options.canaries > 0 && options.revision === '') program.error('error: --canaries needs --revision.');
  return options;
}

/** Adds the options that say what the pod provides for the shim of its node. */
function withProvided(program: Command): void {
  program
    .option(
      '--shim-credentials <FOLDER>',
      'Folder with token and ca.crt for the kubeconfig of the shim; empty: none.',
      '',
    )
    .option(
      '--metrics-port <PORT>',
      "Serve the metrics of this node's shim at this port; 0: do not.",
      count(0, 65_535),
      0,
    );
}

/** Adds the options that say in which order nodes are changed. */
function withWaves(program: Command): void {
  program
    .option(
      '--parallel <COUNT>',
      `How many nodes are changed at the same time, up to ${MOST_PARALLEL}.`,
      count(1, MOST_PARALLEL),
      1,
    )
    .option(
      '--canaries <COUNT>',
      `How many canary nodes have to pass before other nodes are changed, up to ${MOST_CANARIES}.`,
      count(0, MOST_CANARIES),
      0,
    )
    .option('--canary-label <KEY=VALUE>', 'Label of canary nodes.', label, label('cri-resize-shim.io/canary=true'))
    .addOption(
      durationOption('--soak <DURATION>', 'A canary node passes after it has worked for this time.', 300_000, '5m'),
    )
    .addOption(
      new Option('--spread <DURATION>', 'Each pod first waits for a random part of this time; 0s: none.')
        .argParser(durationOrZero)
        .default(10_000, '10s'),
    )
    .option('--revision <TEXT>', 'Revision of the DaemonSet: canary nodes and halts belong to one.', '');
}
