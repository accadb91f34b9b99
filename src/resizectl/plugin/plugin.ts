import { Command, CommanderError, Option } from 'commander';
import { Exit, version } from '../../core/index.ts';
import { type Output, outputs } from '../command-texts.ts';
import { reportOf, UsageError } from '../output/failure.ts';
import { sayingWaits } from '../waiting.ts';
import { fleetOf, fleetText, type Installer, installerOn, placedPod, resizectlOn } from './fleet.ts';
import { Kubectl } from './kubectl.ts';

/** `kubectl resizectl`: reads pods and nodes from outside, through the pods of the DaemonSet. It changes nothing. */

/** The name under which kubectl finds its plugin. */
const PLUGIN = 'kubectl-resizectl';

export interface PluginOutput {
  readonly out: (text: string) => void;
  readonly err: (text: string) => void;
}

interface Options {
  readonly namespace?: string;
  readonly node?: string;
  readonly shimNamespace: string;
  readonly context?: string;
  readonly kubeconfig?: string;
  readonly output?: (typeof outputs)[number];
}

interface Asked {
  readonly command: 'status' | 'plan' | 'fleet';
  readonly args: readonly string[];
  readonly options: Options;
}

/** Runs the plugin with the arguments after its name. Returns the exit code, of `resizectl` if run on the node. */
export async function runPlugin(argv: readonly string[], { out, err }: PluginOutput): Promise<number> {
  try {
    const asked = parsed(argv, out);
    if (asked === undefined) return Exit.done;
    const say = (line: string): void => err(`${PLUGIN}: ${line}\n`);
    const kubectl = new Kubectl(asked.options, (what, work) => sayingWaits(what, work, say));
    return await run(kubectl, asked, { out, err });
  } catch (error) {
    const { lines, exit } = reportOf(error, '');
    err(lines.map((line) => `${PLUGIN}: ${line}\n`).join(''));
    return exit;
  }
}

async function run(kubectl: Kubectl, { command, args, options }: Asked, { out, err }: PluginOutput): Promise<number> {
  const { output, node, namespace } = options;
  if (command === 'fleet') {
    const nodes = await fleetOf(kubectl, options);
    out(fleetText(nodes, formatOf(output)));
    return nodes.some(({ error }) => error !== '') ? Exit.failed : Exit.done;
  }
  const format = output === undefined ? [] : [`--output=${output}`];
  const [pod, ...changes] = args;
  if (pod === undefined) {
    if (node === undefined) throw new UsageError('status: name a pod, or a node with --node');
    return pass(kubectl, await installerOn(kubectl, options, node), ['top', ...format], { out, err });
  }
  if (node !== undefined) throw new UsageError('status: POD and --node exclude each other: a pod has its own node');
  const placed = await placedPod(kubectl, namespace, pod);
  const name = `${placed.namespace}/${placed.name}`;
  const words = command === 'status' ? ['describe', 'pod'] : ['plan'];
  // A change must not be interpreted as an option on the node.
  const all = [...words, ...format, '--', name, ...changes];
  return pass(kubectl, await installerOn(kubectl, options, placed.node), all, { out, err });
}

/** Runs resizectl on a node, and passes on what it prints. */
async function pass(
  kubectl: Kubectl,
  installer: Installer,
  words: readonly string[],
  { out, err }: PluginOutput,
): Promise<number> {
  const ended = await resizectlOn(kubectl, installer, words);
  out(ended.out);
  err(ended.err);
  return ended.code;
}

const formatOf = (output: Options['output'] = 'table'): Output => (output === 'wide' ? 'table' : output);

/** Returns undefined if help or version was asked for, and printed. Throws UsageError. */
function parsed(argv: readonly string[], out: (text: string) => void): Asked | undefined {
  let asked: Asked | undefined;
  const on = (command: Asked['command'], form: string, description: string): Command =>
    shared(program.command(`${command} ${form}`.trim()), out)
      .description(description)
      .action((...all) => {
        const self = all.at(-1) as Command;
        asked = { command, args: self.args, options: self.optsWithGlobals<Options>() };
      });
  const program = shared(new Command('kubectl resizectl'), out)
    .description(
      'Reads pods and nodes with cri-resize-shim from outside, through the pods of its DaemonSet. Changes nothing.',
    )
    .version(version, '-V, --version', 'Print the version and exit.')
    .option('-n, --namespace <NAMESPACE>', 'Namespace of the pod (default: that of the context).')
    .option('--shim-namespace <NAMESPACE>', 'Namespace of the DaemonSet.', 'cri-resize-shim')
    .option('--context <NAME>', 'Context of the kubeconfig.')
    .option('--kubeconfig <FILE>', 'The kubeconfig (default: that of kubectl).')
    .addOption(new Option('-o, --output <FORMAT>', 'Output format.').choices([...outputs]));
  on('status', '[POD]', 'Show limits, usage and the last resizes of a pod, or the pods of a node by pressure.').option(
    '--node <NODE>',
    'The node, instead of a pod.',
  );
  on('plan', '<POD> <CHANGE...>', 'Print the steps of a resize without applying them, or why it would be rejected.');
  on('fleet', '', 'List the nodes with the shim: version, state, bypass, and whether kubelet uses it.');
  try {
    program.parse(argv, { from: 'user' });
  } catch (error) {
    if (!(error instanceof CommanderError)) throw error;
    if (error.exitCode === 0) return undefined;
    const message = error.code === 'commander.help' ? 'missing command' : error.message.replace(/^error: /, '');
    const hint = 'kubectl resizectl --help lists the commands';
    throw new UsageError(`${message.replaceAll('\n', ' ')}; ${hint}`, { cause: error });
  }
  return asked;
}

const shared = (command: Command, out: (text: string) => void): Command =>
  command
    .helpOption('-h, --help', 'Print this help and exit.')
    .helpCommand(false)
    .allowExcessArguments(false)
    .configureHelp({ helpWidth: 100 })
    .configureOutput({ writeOut: out, writeErr: () => undefined })
    .exitOverride();
